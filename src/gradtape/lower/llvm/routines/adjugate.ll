; The adjugate adj(U) L^-1 P.T, up to the sign of P, from the factors and pivots. Nothing is divided: U may be singular.
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @"scipy.linalg.cython_blas.${letter}trsm"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
@char.L = internal constant [2 x i8] c"L\00"
@char.U = internal constant [2 x i8] c"U\00"
@char.T = internal constant [2 x i8] c"T\00"
@$T.1 = internal constant $T 1.0

define internal i1 @adjugate.$dtype(
  ptr noalias %a, ptr noalias %pivots, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {
entry:
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  %size = mul i64 %n, %n
  %bytes = mul i64 %size, $itemsize
  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 %bytes, i1 false)
  br label %scale
scale:
  %s = phi i64 [ 0, %entry ], [ %s.next, %scale.done ]
  %total = phi $T [ 0.0, %entry ], [ %total.next, %scale.done ]
  br label %scale.term
scale.term:
  %c = phi i64 [ %s, %scale ], [ %c.next, %scale.term ]
  %most = phi $T [ 0.0, %scale ], [ %most.next, %scale.term ]
  %c.start = mul i64 %c, %n
  %c.place = add i64 %c.start, %s
  %c.at = getelementptr inbounds $T, ptr %a, i64 %c.place
  %c.value = load $T, ptr %c.at
  %c.size = call $T @llvm.fabs.$f($T %c.value)
  %most.next = call $T @llvm.maxnum.$f($T %most, $T %c.size)
  %c.next = add i64 %c, 1
  %c.more = icmp ult i64 %c.next, %n
  br i1 %c.more, label %scale.term, label %scale.done
scale.done:
  %log = call $T @llvm.log2.$f($T %most.next)
  %floor = call $T @llvm.floor.$f($T %log)
  %log.size = call $T @llvm.fabs.$f($T %floor)
  %usual = fcmp olt $T %log.size, $limit
  %exponent = select i1 %usual, $T %floor, $T 0.0
  %exponent.at = getelementptr inbounds $T, ptr %spare, i64 %s
  store $T %exponent, ptr %exponent.at
  %total.next = fadd $T %total, %exponent
  %opposite = fneg $T %exponent
  %scale.value = call $T @llvm.exp2.$f($T %opposite)
  %scale.place = add i64 %n, %s
  %scale.at = getelementptr inbounds $T, ptr %spare, i64 %scale.place
  store $T %scale.value, ptr %scale.at
  %s.next = add i64 %s, 1
  %s.more = icmp ult i64 %s.next, %n
  br i1 %s.more, label %scale, label %scales
scales:
  %scales.at = getelementptr inbounds $T, ptr %spare, i64 %n
  br label %column
; The adjugate of the leading triangle of U, one row and column more at a time.
column:
  %j = phi i64 [ 0, %scales ], [ %j.next, %column.done ]
  %product = phi $T [ 1.0, %scales ], [ %product.next, %column.done ]
  %u.start = mul i64 %j, %n
  %u.column = getelementptr inbounds $T, ptr %a, i64 %u.start
  %u.corner.at = getelementptr inbounds $T, ptr %u.column, i64 %j
  %u.corner.value = load $T, ptr %u.corner.at
  %own.scale.at = getelementptr inbounds $T, ptr %scales.at, i64 %j
  %own.scale = load $T, ptr %own.scale.at
  %u.corner = fmul $T %u.corner.value, %own.scale
  %corner.place = add i64 %u.start, %j
  %corner.at = getelementptr inbounds $T, ptr %out, i64 %corner.place
  store $T %product, ptr %corner.at
  %product.next = fmul $T %product, %u.corner
  %first = icmp eq i64 %j, 0
  br i1 %first, label %column.done, label %row
row:
  %i = phi i64 [ 0, %column ], [ %i.next, %row.done ]
  %row.start = mul i64 %i, %n
  %row.at = getelementptr inbounds $T, ptr %out, i64 %row.start
  br label %term
term:
  %k = phi i64 [ %i, %row ], [ %k.next, %term ]
  %sum = phi $T [ 0.0, %row ], [ %sum.next, %term ]
  %x.at = getelementptr inbounds $T, ptr %row.at, i64 %k
  %x = load $T, ptr %x.at
  %u.at = getelementptr inbounds $T, ptr %u.column, i64 %k
  %u.value = load $T, ptr %u.at
  %k.scale.at = getelementptr inbounds $T, ptr %scales.at, i64 %k
  %k.scale = load $T, ptr %k.scale.at
  %u = fmul $T %u.value, %k.scale
  %xu = fmul contract $T %x, %u
  %sum.next = fadd reassoc contract $T %sum, %xu
  %x.scaled = fmul $T %x, %u.corner
  store $T %x.scaled, ptr %x.at
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %j
  br i1 %k.more, label %term, label %row.done
row.done:
  %last.at = getelementptr inbounds $T, ptr %row.at, i64 %j
  %last = fneg $T %sum.next
  store $T %last, ptr %last.at
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %j
  br i1 %i.more, label %row, label %column.done
column.done:
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %n
  br i1 %j.more, label %column, label %back
back:
  %b = phi i64 [ 0, %column.done ], [ %b.next, %back.done ]
  %b.exponent.at = getelementptr inbounds $T, ptr %spare, i64 %b
  %b.exponent = load $T, ptr %b.exponent.at
  %others = fsub $T %total.next, %b.exponent
  %halved = fmul $T %others, 0.5
  %half = call $T @llvm.floor.$f($T %halved)
  %rest = fsub $T %others, %half
  %half.factor = call $T @llvm.exp2.$f($T %half)
  %rest.factor = call $T @llvm.exp2.$f($T %rest)
  br label %back.element
back.element:
  %v = phi i64 [ 0, %back ], [ %v.next, %back.element ]
  %v.start = mul i64 %v, %n
  %v.place = add i64 %v.start, %b
  %v.at = getelementptr inbounds $T, ptr %out, i64 %v.place
  %v.value = load $T, ptr %v.at
  %v.half = fmul $T %v.value, %half.factor
  %v.whole = fmul $T %v.half, %rest.factor
  store $T %v.whole, ptr %v.at
  %v.next = add i64 %v, 1
  %v.more = icmp ule i64 %v.next, %b
  br i1 %v.more, label %back.element, label %back.done
back.done:
  %b.next = add i64 %b, 1
  %b.more = icmp ult i64 %b.next, %n
  br i1 %b.more, label %back, label %lower
lower:
  call void @"scipy.linalg.cython_blas.${letter}trsm"(
    ptr @char.L, ptr @char.L, ptr @char.T, ptr @char.U,
    ptr %n.at, ptr %n.at, ptr @$T.1, ptr %a, ptr %n.at, ptr %out, ptr %n.at)
  br label %swap
; Rows were exchanged from the first to the last; the columns of the adjugate are exchanged the other way round.
swap:
  %left = phi i64 [ %n, %lower ], [ %one, %swap.done ]
  %odd = phi i1 [ false, %lower ], [ %odd.next, %swap.done ]
  %one = sub i64 %left, 1
  %pivot.at = getelementptr inbounds i32, ptr %pivots, i64 %one
  %pivot = load i32, ptr %pivot.at
  %number = sext i32 %pivot to i64
  %other = sub i64 %number, 1
  %moves = icmp ne i64 %other, %one
  %odd.next = xor i1 %odd, %moves
  br i1 %moves, label %exchange, label %swap.done
exchange:
  %r = phi i64 [ 0, %swap ], [ %r.next, %exchange ]
  %r.start = mul i64 %r, %n
  %own.place = add i64 %r.start, %one
  %far.place = add i64 %r.start, %other
  %own.at = getelementptr inbounds $T, ptr %out, i64 %own.place
  %far.at = getelementptr inbounds $T, ptr %out, i64 %far.place
  %own = load $T, ptr %own.at
  %far = load $T, ptr %far.at
  store $T %far, ptr %own.at
  store $T %own, ptr %far.at
  %r.next = add i64 %r, 1
  %r.more = icmp ult i64 %r.next, %n
  br i1 %r.more, label %exchange, label %swap.done
swap.done:
  %more = icmp ugt i64 %one, 0
  br i1 %more, label %swap, label %signs
signs:
  br i1 %odd.next, label %negate, label %done
negate:
  %e = phi i64 [ 0, %signs ], [ %e.next, %negate ]
  %e.at = getelementptr inbounds $T, ptr %out, i64 %e
  %positive = load $T, ptr %e.at
  %negative = fneg $T %positive
  store $T %negative, ptr %e.at
  %e.next = add i64 %e, 1
  %e.more = icmp ult i64 %e.next, %size
  br i1 %e.more, label %negate, label %done
done:
  ret i1 false
}
