; Memory of procedures. An arena is a tape, which grows in one piece, and a list of chunks, from which arrays are taken one after the other.
; Between calls arenas stand in the slots of a table: to take one is to exchange it for a null pointer.
;
; An arena: the tape's begin and end, the present chunk, the next free byte in it, its end, the first chunk, the bytes of all chunks,
; and the bytes of the last large tape. A chunk begins with the address of the next one and that of its own end.
; Tapes and chunks are blocks of the memory pool. Large ones go back to it at the end of a call, small ones stay in the arena.
%arena = type { ptr, ptr, ptr, ptr, ptr, ptr, i64, i64 }
@slots = internal global [$slots x ptr] zeroinitializer
declare ptr @PyMem_RawCalloc(i64, i64)
declare void @PyMem_RawFree(ptr)
declare ptr @llvm.ptrmask.p0.i64(ptr, i64)
declare i64 @llvm.umax.i64(i64, i64)

; Returns an arena; null where there is no memory.
define ptr @take_arena() nounwind {
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %empty ]
  %slot = getelementptr inbounds ptr, ptr @slots, i64 %k
  %there = load atomic ptr, ptr %slot monotonic, align 8
  %some = icmp ne ptr %there, null
  br i1 %some, label %try, label %empty
try:
  %arena = atomicrmw xchg ptr %slot, ptr null acq_rel
  %got = icmp ne ptr %arena, null
  br i1 %got, label %found, label %empty
empty:
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, $slots
  br i1 %more, label %look, label %new
found:
  ret ptr %arena
new:
  %made = call ptr @PyMem_RawCalloc(i64 1, i64 64)
  ret ptr %made
}

; Takes an arena back.
define void @give_arena(ptr %arena) nounwind {
entry:
  call void @return_large(ptr %arena)
  %first.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 5
  %first = load ptr, ptr %first.at
  call void @enter(ptr %arena, ptr %first)
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %full ]
  %slot = getelementptr inbounds ptr, ptr @slots, i64 %k
  %pair = cmpxchg ptr %slot, ptr null, ptr %arena acq_rel monotonic
  %done = extractvalue { ptr, i1 } %pair, 1
  br i1 %done, label %over, label %full
full:
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, $slots
  br i1 %more, label %look, label %free
free:
  call void @clear(ptr %arena)
  call void @PyMem_RawFree(ptr %arena)
  br label %over
over:
  ret void
}

; Makes a chunk the present one; null stands for none.
define internal void @enter(ptr %arena, ptr %chunk) nounwind {
  %chunk.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 2
  %free.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 3
  %end.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 4
  store ptr %chunk, ptr %chunk.at
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %empty, label %some
empty:
  store ptr null, ptr %free.at
  store ptr null, ptr %end.at
  ret void
some:
  ; Behind the head, on a 64-byte boundary.
  %behind = getelementptr inbounds i8, ptr %chunk, i64 $behind
  %free = call ptr @llvm.ptrmask.p0.i64(ptr %behind, i64 -64)
  store ptr %free, ptr %free.at
  %last.at = getelementptr inbounds i8, ptr %chunk, i64 8
  %last = load ptr, ptr %last.at
  store ptr %last, ptr %end.at
  ret void
}

; Frees the arrays that were allocated since `chunk` was the present chunk and `free` the next byte.
define void @rewind(ptr %arena, ptr %chunk, ptr %free) nounwind {
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %all, label %some
all:
  %first.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 5
  %first = load ptr, ptr %first.at
  call void @enter(ptr %arena, ptr %first)
  ret void
some:
  call void @enter(ptr %arena, ptr %chunk)
  %free.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 3
  store ptr %free, ptr %free.at
  ret void
}

; Frees all memory of an arena but itself.
define internal void @clear(ptr %arena) nounwind {
entry:
  %tape = load ptr, ptr %arena
  call void @release(ptr %tape)
  %first.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 5
  %first = load ptr, ptr %first.at
  br label %test
test:
  %chunk = phi ptr [ %first, %entry ], [ %after, %body ]
  %some = icmp ne ptr %chunk, null
  br i1 %some, label %body, label %end
body:
  %after = load ptr, ptr %chunk
  call void @release(ptr %chunk)
  br label %test
end:
  store %arena zeroinitializer, ptr %arena
  ret void
}

; Returns large tapes and chunks to the pool. The next call takes the same ones: it asks for the same sizes.
define internal void @return_large(ptr %arena) nounwind {
entry:
  %end.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 1
  %first.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 5
  %bytes.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 6
  %hint.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 7
  %tape.block = load ptr, ptr %arena
  %tape.end = load ptr, ptr %end.at
  %tape.from = ptrtoint ptr %tape.block to i64
  %tape.to = ptrtoint ptr %tape.end to i64
  %tape.size = sub i64 %tape.to, %tape.from
  %tape.large = icmp uge i64 %tape.size, $large
  br i1 %tape.large, label %return.tape, label %chunks
return.tape:
  call void @release(ptr %tape.block)
  store ptr null, ptr %arena
  store ptr null, ptr %end.at
  store i64 %tape.size, ptr %hint.at
  br label %chunks
chunks:
  br label %test
test:
  ; The word that points to the chunk that is looked at.
  %link = phi ptr [ %first.at, %chunks ], [ %link, %return.chunk ], [ %chunk, %keep ]
  %chunk = load ptr, ptr %link
  %last = icmp eq ptr %chunk, null
  br i1 %last, label %over, label %look
look:
  %chunk.end.at = getelementptr inbounds i8, ptr %chunk, i64 8
  %chunk.end = load i64, ptr %chunk.end.at
  %chunk.from = ptrtoint ptr %chunk to i64
  %chunk.size = sub i64 %chunk.end, %chunk.from
  %chunk.large = icmp uge i64 %chunk.size, $large
  br i1 %chunk.large, label %return.chunk, label %keep
keep:
  br label %test
return.chunk:
  %after = load ptr, ptr %chunk
  store ptr %after, ptr %link
  call void @release(ptr %chunk)
  %all = load i64, ptr %bytes.at
  %less = sub i64 %all, %chunk.size
  store i64 %less, ptr %bytes.at
  br label %test
over:
  ret void
}

; Frees what no call uses.
define void @trim_arenas() nounwind {
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %done ]
  %slot = getelementptr inbounds ptr, ptr @slots, i64 %k
  %arena = atomicrmw xchg ptr %slot, ptr null acq_rel
  %some = icmp ne ptr %arena, null
  br i1 %some, label %free, label %done
free:
  call void @clear(ptr %arena)
  call void @PyMem_RawFree(ptr %arena)
  br label %done
done:
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, $slots
  br i1 %more, label %look, label %over
over:
  ret void
}

; Returns the bytes of the arenas that no call uses.
define i64 @held() nounwind {
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %done ]
  %sum = phi i64 [ 0, %entry ], [ %total, %done ]
  %slot = getelementptr inbounds ptr, ptr @slots, i64 %k
  %arena = atomicrmw xchg ptr %slot, ptr null acq_rel
  %some = icmp ne ptr %arena, null
  br i1 %some, label %count, label %done
count:
  %bytes.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 6
  %chunks = load i64, ptr %bytes.at
  %tape = load i64, ptr %arena
  %end.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 1
  %end = load i64, ptr %end.at
  %length = sub i64 %end, %tape
  %bytes = add i64 %chunks, %length
  %more = add i64 %sum, %bytes
  call void @give_arena(ptr %arena)
  br label %done
done:
  %total = phi i64 [ %sum, %look ], [ %more, %count ]
  %next = add i64 %k, 1
  %again = icmp ult i64 %next, $slots
  br i1 %again, label %look, label %over
over:
  ret i64 %total
}

; Returns memory for so many bytes, on a 64-byte boundary; null where there is none.
define ptr @allocate_array(ptr %arena, i64 %bytes) nounwind {
entry:
  %free.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 3
  %end.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 4
  ; Not even nothing is a null pointer.
  %none = icmp slt i64 %bytes, 1
  %wanted = select i1 %none, i64 1, i64 %bytes
  %huge = icmp ugt i64 %wanted, 4611686018427387904
  br i1 %huge, label %failed, label %round
round:
  %raised = add i64 %wanted, 63
  %whole = and i64 %raised, -64
  br label %look
look:
  %free = load ptr, ptr %free.at
  %end = load ptr, ptr %end.at
  %from = ptrtoint ptr %free to i64
  %to = ptrtoint ptr %end to i64
  %room = sub i64 %to, %from
  %fits = icmp ule i64 %whole, %room
  br i1 %fits, label %there, label %more
there:
  %after = getelementptr inbounds i8, ptr %free, i64 %whole
  store ptr %after, ptr %free.at
  ret ptr %free
more:
  %lacks = call i1 @enlarge(ptr %arena, i64 %whole)
  br i1 %lacks, label %failed, label %look
failed:
  ret ptr null
}

; Enters the next chunk if it has so many bytes, otherwise a new one before it; whether there is no memory.
define internal i1 @enlarge(ptr %arena, i64 %bytes) noinline cold nounwind {
entry:
  %chunk.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 2
  %first.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 5
  %bytes.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 6
  %chunk = load ptr, ptr %chunk.at
  %none = icmp eq ptr %chunk, null
  ; The next chunk is the first word of the present one.
  %link = select i1 %none, ptr %first.at, ptr %chunk
  %following = load ptr, ptr %link
  %last = icmp eq ptr %following, null
  br i1 %last, label %new, label %known
known:
  %known.end.at = getelementptr inbounds i8, ptr %following, i64 8
  %known.end = load i64, ptr %known.end.at
  %known.from = ptrtoint ptr %following to i64
  %known.room = sub i64 %known.end, %known.from
  %known.free = sub i64 %known.room, $head
  %fits = icmp ule i64 %bytes, %known.free
  br i1 %fits, label %enter, label %new
enter:
  call void @enter(ptr %arena, ptr %following)
  ret i1 false
new:
  %all = load i64, ptr %bytes.at
  %enough = icmp ugt i64 %bytes, %all
  %half = select i1 %enough, i64 %bytes, i64 %all
  %tiny = icmp ult i64 %half, $chunk
  %room = select i1 %tiny, i64 $chunk, i64 %half
  %size = add i64 %room, $head
  %raw = call ptr @allocate(i64 %size)
  %failed = icmp eq ptr %raw, null
  br i1 %failed, label %over, label %made
made:
  store ptr %following, ptr %raw
  %end.at = getelementptr inbounds i8, ptr %raw, i64 8
  %end = getelementptr inbounds i8, ptr %raw, i64 %size
  store ptr %end, ptr %end.at
  store ptr %raw, ptr %link
  %sum = add i64 %all, %size
  store i64 %sum, ptr %bytes.at
  call void @enter(ptr %arena, ptr %raw)
  br label %over
over:
  ret i1 %failed
}

; Makes room for so many bytes behind a place on the tape, and returns where that place is now; null where there is no memory.
define ptr @extend_tape(ptr %arena, ptr %top, i64 %bytes) noinline cold nounwind {
entry:
  %end.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 1
  %tape = load ptr, ptr %arena
  %end = load ptr, ptr %end.at
  %from = ptrtoint ptr %tape to i64
  %to = ptrtoint ptr %end to i64
  %at = ptrtoint ptr %top to i64
  %had = sub i64 %to, %from
  %used = sub i64 %at, %from
  %needed = add i64 %used, %bytes
  %negative = icmp slt i64 %needed, 0
  br i1 %negative, label %failed, label %size
size:
  %twice = shl i64 %had, 1
  %larger = icmp ugt i64 %twice, %needed
  %wanted = select i1 %larger, i64 %twice, i64 %needed
  ; As large at once as the tape that this arena had last.
  %hint.at = getelementptr inbounds %arena, ptr %arena, i64 0, i32 7
  %hint = load i64, ptr %hint.at
  %usual = call i64 @llvm.umax.i64(i64 %hint, i64 $chunk)
  %room = call i64 @llvm.umax.i64(i64 %usual, i64 %wanted)
  %new = call ptr @allocate(i64 %room)
  %none = icmp eq ptr %new, null
  br i1 %none, label %failed, label %made
made:
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %tape, i64 %used, i1 false)
  call void @discard(ptr %tape)
  store ptr %new, ptr %arena
  %new.end = getelementptr inbounds i8, ptr %new, i64 %room
  store ptr %new.end, ptr %end.at
  %now = getelementptr inbounds i8, ptr %new, i64 %used
  ret ptr %now
failed:
  ret ptr null
}
