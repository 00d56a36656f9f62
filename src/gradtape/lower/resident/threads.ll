@mutex = internal global [8 x i64] zeroinitializer
@work = internal global [8 x i64] zeroinitializer
@done = internal global [8 x i64] zeroinitializer
@threads = global i64 1
@helpers = internal global i64 0
@busy = internal global i64 0
@seats = internal global i64 0
@active = internal global i64 0
@task = internal global ptr null
@context = internal global ptr null
@blocks = internal global i64 0
@bytes = internal global i64 0
@next = internal global [8 x i64] zeroinitializer, align 64

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare ptr @malloc(i64)
declare void @free(ptr)
declare i64 @llvm.smin.i64(i64, i64)

define void @reset() nounwind {
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @work, ptr null)
  call i32 @pthread_cond_init(ptr @done, ptr null)
  store i64 0, ptr @helpers
  store i64 0, ptr @busy
  store i64 0, ptr @seats
  store i64 0, ptr @active
  ret void
}

define internal void @claim(ptr %task, ptr %context, i64 %blocks, ptr %scratch) nounwind {
entry:
  br label %next
next:
  %block = atomicrmw add ptr @next, i64 1 monotonic
  %mine = icmp slt i64 %block, %blocks
  br i1 %mine, label %run, label %end
run:
  call void %task(ptr %context, i64 %block, ptr %scratch)
  br label %next
end:
  ret void
}

define internal ptr @help(ptr %nothing) nounwind {
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %wait
wait:
  %held = phi ptr [ null, %entry ], [ %held, %sleep ], [ %memory, %leave ]
  %size = phi i64 [ 0, %entry ], [ %size, %sleep ], [ %room, %leave ]
  %seats = load i64, ptr @seats
  %idle = icmp eq i64 %seats, 0
  br i1 %idle, label %sleep, label %join
sleep:
  call i32 @pthread_cond_wait(ptr @work, ptr @mutex)
  br label %wait
join:
  %fewer = sub i64 %seats, 1
  store i64 %fewer, ptr @seats
  %before = load i64, ptr @active
  %joined = add i64 %before, 1
  store i64 %joined, ptr @active
  %task = load ptr, ptr @task
  %context = load ptr, ptr @context
  %blocks = load i64, ptr @blocks
  %bytes = load i64, ptr @bytes
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %enough = icmp sgt i64 %size, %bytes
  br i1 %enough, label %ready, label %grow
grow:
  call void @free(ptr %held)
  %wanted = add i64 %bytes, 64
  %fresh = call ptr @malloc(i64 %wanted)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %leave, label %ready
ready:
  %block = phi ptr [ %held, %join ], [ %fresh, %grow ]
  %have = phi i64 [ %size, %join ], [ %wanted, %grow ]
  %address = ptrtoint ptr %block to i64
  %opposite = sub i64 0, %address
  %skip = and i64 %opposite, 63
  %scratch = getelementptr i8, ptr %block, i64 %skip
  call void @claim(ptr %task, ptr %context, i64 %blocks, ptr %scratch)
  br label %leave
leave:
  %memory = phi ptr [ null, %grow ], [ %block, %ready ]
  %room = phi i64 [ 0, %grow ], [ %have, %ready ]
  call i32 @pthread_mutex_lock(ptr @mutex)
  %during = load i64, ptr @active
  %after = sub i64 %during, 1
  store i64 %after, ptr @active
  call i32 @pthread_cond_signal(ptr @done)
  br label %wait
}

define internal void @hire(i64 %wanted) nounwind {
entry:
  %thread = alloca i64
  %all = alloca [16 x i64]
  %mask = alloca [16 x i64]
  call i32 @sigfillset(ptr %all)
  call i32 @pthread_sigmask(i32 $set_mask, ptr %all, ptr %mask)
  br label %next
next:
  %count = load i64, ptr @helpers
  %missing = icmp slt i64 %count, %wanted
  br i1 %missing, label %create, label %end
create:
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @help, ptr null)
  %made = icmp eq i32 %status, 0
  br i1 %made, label %keep, label %end
keep:
  %handle = load i64, ptr %thread
  call i32 @pthread_detach(i64 %handle)
  %more = add i64 %count, 1
  store i64 %more, ptr @helpers
  br label %next
end:
  call i32 @pthread_sigmask(i32 $set_mask, ptr %mask, ptr null)
  ret void
}

define void @run_blocks(ptr %task, ptr %context, i64 %blocks, i64 %bytes) nounwind {
entry:
  %threads = load i64, ptr @threads
  %most = call i64 @llvm.smin.i64(i64 %threads, i64 %blocks)
  %wanted = sub i64 %most, 1
  %several = icmp sgt i64 %wanted, 0
  br i1 %several, label %ask, label %single
ask:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %busy = load i64, ptr @busy
  %free = icmp eq i64 %busy, 0
  br i1 %free, label %share, label %taken
taken:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %single
single:
  call void @alone(ptr %task, ptr %context, i64 %blocks)
  ret void
share:
  call void @hire(i64 %wanted)
  store i64 1, ptr @busy
  store ptr %task, ptr @task
  store ptr %context, ptr @context
  store i64 %blocks, ptr @blocks
  store i64 %bytes, ptr @bytes
  store i64 0, ptr @next
  store i64 %wanted, ptr @seats
  call i32 @pthread_cond_broadcast(ptr @work)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call void @claim(ptr %task, ptr %context, i64 %blocks, ptr null)
  call i32 @pthread_mutex_lock(ptr @mutex)
  store i64 0, ptr @seats
  br label %finish
finish:
  %active = load i64, ptr @active
  %over = icmp eq i64 %active, 0
  br i1 %over, label %end, label %sleep
sleep:
  call i32 @pthread_cond_wait(ptr @done, ptr @mutex)
  br label %finish
end:
  store i64 0, ptr @busy
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
