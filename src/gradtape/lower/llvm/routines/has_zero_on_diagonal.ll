; Whether a triangular matrix is singular.

define internal i1 @has_zero_on_diagonal.$dtype(ptr %a, i64 %n) noinline nounwind {
entry:
  %step = add i64 %n, 1
  br label %element
element:
  %i = phi i64 [ 0, %entry ], [ %i.next, %element ]
  %found = phi i1 [ false, %entry ], [ %either, %element ]
  %place = mul i64 %i, %step
  %place.at = getelementptr inbounds $T, ptr %a, i64 %place
  %value = load $T, ptr %place.at
  %zero = fcmp oeq $T %value, 0.0
  %either = or i1 %found, %zero
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %element, label %done
done:
  ret i1 %either
}
