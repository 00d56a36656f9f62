; The sine: (-1)^n sin(x - n pi).
declare double @llvm.fma.f64(double, double, double)
declare double @llvm.fabs.f64(double)

define internal double @inline.sin(double %x) nounwind {
  %size = call double @llvm.fabs.f64(double %x)
  %bits = bitcast double %size to i64
  %before = add i64 %bits, -1
  ; The bits of pi / 2.
  %near = icmp ult i64 %before, 4609753056924675352
  br i1 %near, label %plain, label %far
far:
  %beyond = sub i64 %before, 4609753056924675352
  ; The bits of 2^20, less those.
  %reducible = icmp ult i64 %beyond, 87501354422751976
  br i1 %reducible, label %reduced, label %library, !prof !{!"branch_weights", i32 2000, i32 1}
library:
  %called = call double @sin(double %x) nounwind willreturn memory(none)
  ret double %called
plain:
  %here = fadd double %x, -0.0
  br label %series
reduced:
  %halves = fmul double %x, 0.3183098861837907
  ; What 2^52 * 1.5 is added to is rounded to a whole number, which then stands in the last bits.
  %shifted = fadd double %halves, 6755399441055744.0
  %rounded = fsub double %shifted, 6755399441055744.0
  %whole = bitcast double %shifted to i64
  %n = fadd double %rounded, -0.0
  %away = call double @inline.reduced(double %x, double %n, i64 %whole)
  br label %series
series:
  %r = phi double [ %here, %plain ], [ %away, %reduced ]
  %result = call double @inline.sine_series(double %r)
  ret double %result
}
