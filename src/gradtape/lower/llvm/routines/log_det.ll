; The logarithm of the absolute value of a determinant, from the factors.
declare $T @llvm.fabs.$f($T)
declare $T @llvm.log.$f($T)

define internal i1 @log_det.$dtype(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {
entry:
  %step = add i64 %n, 1
  br label %element
element:
  %i = phi i64 [ 0, %entry ], [ %i.next, %element ]
  %sum = phi $T [ 0.0, %entry ], [ %sum.next, %element ]
  %place = mul i64 %i, %step
  %place.at = getelementptr inbounds $T, ptr %a, i64 %place
  %value = load $T, ptr %place.at
  %size = call $T @llvm.fabs.$f($T %value)
  %term = call $T @llvm.log.$f($T %size)
  %sum.next = fadd $T %sum, %term
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %element, label %done
done:
  store $T %sum.next, ptr %out
  ret i1 false
}
