; Positions sorted by their keys: a stable merge sort.
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @argsort.$dtype(
  ptr noalias %keys, ptr noalias %out, ptr noalias %temp, i64 %n
) noinline nounwind {
entry:
  br label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i.next, %fill ]
  %out.i = getelementptr inbounds i64, ptr %out, i64 %i
  store i64 %i, ptr %out.i
  %i.next = add i64 %i, 1
  %filled = icmp uge i64 %i.next, %n
  br i1 %filled, label %widths, label %fill
widths:
  %width = phi i64 [ 1, %fill ], [ %width.next, %pass.done ]
  %from = phi ptr [ %out, %fill ], [ %to, %pass.done ]
  %to = phi ptr [ %temp, %fill ], [ %from, %pass.done ]
  %sorted = icmp uge i64 %width, %n
  br i1 %sorted, label %finish, label %runs
runs:
  %low = phi i64 [ 0, %widths ], [ %high, %run.done ]
  %middle.far = add i64 %low, %width
  %middle = call i64 @llvm.umin.i64(i64 %middle.far, i64 %n)
  %high.far = add i64 %middle, %width
  %high = call i64 @llvm.umin.i64(i64 %high.far, i64 %n)
  br label %merge
merge:
  %left = phi i64 [ %low, %runs ], [ %left.next, %put ]
  %right = phi i64 [ %middle, %runs ], [ %right.next, %put ]
  %place = phi i64 [ %low, %runs ], [ %place.next, %put ]
  %full = icmp uge i64 %place, %high
  br i1 %full, label %run.done, label %choose
choose:
  %has.left = icmp ult i64 %left, %middle
  %has.right = icmp ult i64 %right, %high
  %both = and i1 %has.left, %has.right
  %left.safe = select i1 %has.left, i64 %left, i64 %low
  %right.safe = select i1 %has.right, i64 %right, i64 %low
  %left.at = getelementptr inbounds i64, ptr %from, i64 %left.safe
  %right.at = getelementptr inbounds i64, ptr %from, i64 %right.safe
  %left.index = load i64, ptr %left.at
  %right.index = load i64, ptr %right.at
  %left.key.at = getelementptr inbounds $T, ptr %keys, i64 %left.index
  %right.key.at = getelementptr inbounds $T, ptr %keys, i64 %right.index
  %left.key = load $T, ptr %left.key.at
  %right.key = load $T, ptr %right.key.at
  %smaller = call i1 @less.$dtype($T %right.key, $T %left.key)
  %only.right = xor i1 %has.left, true
  %preferred = and i1 %both, %smaller
  %take.right = or i1 %preferred, %only.right
  br label %put
put:
  %index = select i1 %take.right, i64 %right.index, i64 %left.index
  %put.at = getelementptr inbounds i64, ptr %to, i64 %place
  store i64 %index, ptr %put.at
  %step.right = zext i1 %take.right to i64
  %step.left = sub i64 1, %step.right
  %left.next = add i64 %left, %step.left
  %right.next = add i64 %right, %step.right
  %place.next = add i64 %place, 1
  br label %merge
run.done:
  %all = icmp uge i64 %high, %n
  br i1 %all, label %pass.done, label %runs
pass.done:
  %width.next = shl i64 %width, 1
  br label %widths
finish:
  %elsewhere = icmp ne ptr %from, %out
  br i1 %elsewhere, label %copy, label %done
copy:
  %bytes = shl i64 %n, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %temp, i64 %bytes, i1 false)
  br label %done
done:
  ret void
}
