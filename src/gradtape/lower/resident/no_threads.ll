; Without POSIX threads: each kernel runs its blocks itself.
@threads = global i64 1

define void @reset() nounwind {
  ret void
}
define void @run_blocks(ptr %task, ptr %context, i64 %blocks, i64 %bytes) nounwind {
  call void @alone(ptr %task, ptr %context, i64 %blocks)
  ret void
}
