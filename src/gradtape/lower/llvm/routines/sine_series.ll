; The sine of an angle up to a right one, r + r^3 P(r^2): P is the series of (sin(sqrt(u)) / sqrt(u) - 1) / u for u up to (pi / 2)^2,
; the rest of which is 4e-19.
declare double @llvm.fma.f64(double, double, double)

define internal double @inline.sine_series(double %r) alwaysinline nounwind {
  %u = fmul double %r, %r
  %u2 = fmul double %u, %u
  %u4 = fmul double %u2, %u2
  %ru = fmul double %r, %u
  %p0 = call double @llvm.fma.f64(double 0.008333333333333316, double %u, double -0.16666666666666666)
  %p1 = call double @llvm.fma.f64(double 2.7557319219163205e-06, double %u, double -0.00019841269841254974)
  %p2 = call double @llvm.fma.f64(double 1.605897731221174e-10, double %u, double -2.505210761699229e-08)
  %p3 = call double @llvm.fma.f64(double 2.7314446665270123e-15, double %u, double -7.643970288741763e-13)
  %low = call double @llvm.fma.f64(double %p1, double %u2, double %p0)
  %high = call double @llvm.fma.f64(double %p3, double %u2, double %p2)
  %sum = call double @llvm.fma.f64(double %high, double %u4, double %low)
  %result = call double @llvm.fma.f64(double %ru, double %sum, double %r)
  ret double %result
}

; x - n pi, with the opposite sign where %odd is odd: pi is the sum of three numbers.
define internal double @inline.reduced(double %x, double %n, i64 %odd) alwaysinline nounwind {
  %r1 = call double @llvm.fma.f64(double %n, double -3.141592653589793, double %x)
  %r2 = call double @llvm.fma.f64(double %n, double -1.2246467991473532e-16, double %r1)
  %r3 = call double @llvm.fma.f64(double %n, double 2.9947698097183397e-33, double %r2)
  %sign = shl i64 %odd, 63
  %bits = bitcast double %r3 to i64
  %signed = xor i64 %bits, %sign
  %result = bitcast i64 %signed to double
  ret double %result
}
