; The determinant, from the factors and pivots. The product is kept near 1, so that only the result may leave the range.
declare $T @llvm.fabs.$f($T)
declare $T @llvm.ldexp.$f.i32($T, i32)

define internal i1 @determinant.$dtype(
  ptr noalias %a, ptr noalias %pivots, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {
entry:
  %step = add i64 %n, 1
  %low = call $T @llvm.ldexp.$f.i32($T 1.0, i32 -$limit)
  %high = call $T @llvm.ldexp.$f.i32($T 1.0, i32 $limit)
  %down = call $T @llvm.ldexp.$f.i32($T 1.0, i32 -$scale)
  %up = call $T @llvm.ldexp.$f.i32($T 1.0, i32 $scale)
  br label %element
element:
  %i = phi i64 [ 0, %entry ], [ %i.next, %element ]
  %product = phi $T [ 1.0, %entry ], [ %product.next, %element ]
  %count = phi i64 [ 0, %entry ], [ %count.next, %element ]
  %place = mul i64 %i, %step
  %place.at = getelementptr inbounds $T, ptr %a, i64 %place
  %value = load $T, ptr %place.at
  %i.next = add i64 %i, 1
  %pivot.at = getelementptr inbounds i32, ptr %pivots, i64 %i
  %pivot = load i32, ptr %pivot.at
  %number = sext i32 %pivot to i64
  %stays = icmp eq i64 %number, %i.next
  %opposite = fneg $T %value
  %signed = select i1 %stays, $T %value, $T %opposite
  %size = call $T @llvm.fabs.$f($T %signed)
  %large = fcmp ogt $T %size, %high
  %small = fcmp olt $T %size, %low
  %factor.down = select i1 %large, $T %down, $T 1.0
  %factor = select i1 %small, $T %up, $T %factor.down
  %near = fmul $T %signed, %factor
  %next = fmul $T %product, %near
  %next.size = call $T @llvm.fabs.$f($T %next)
  %next.large = fcmp ogt $T %next.size, %high
  %next.small = fcmp olt $T %next.size, %low
  %back.down = select i1 %next.large, $T %down, $T 1.0
  %back = select i1 %next.small, $T %up, $T %back.down
  %product.next = fmul $T %next, %back
  %large.one = zext i1 %large to i64
  %small.one = zext i1 %small to i64
  %next.large.one = zext i1 %next.large to i64
  %next.small.one = zext i1 %next.small to i64
  %count.a = add i64 %count, %large.one
  %count.b = sub i64 %count.a, %small.one
  %count.c = add i64 %count.b, %next.large.one
  %count.next = sub i64 %count.c, %next.small.one
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %element, label %scaled
scaled:
  %left = phi i64 [ %count.next, %element ], [ %left.next, %again ]
  %found = phi $T [ %product.next, %element ], [ %found.next, %again ]
  %done = icmp eq i64 %left, 0
  br i1 %done, label %end, label %again
again:
  %is.up = icmp sgt i64 %left, 0
  %one = select i1 %is.up, i64 -1, i64 1
  %power = select i1 %is.up, $T %up, $T %down
  %found.next = fmul $T %found, %power
  %left.next = add i64 %left, %one
  br label %scaled
end:
  store $T %found, ptr %out
  ret i1 false
}
