@main = global i64 0
@patience = global i64 $patience
@pause = global i64 $pause
@last = internal global i64 0
@begin = internal global i64 0
@done = internal global i64 $most
@total = internal global i64 0
@shown = internal global i64 0
@is_shown = internal global i1 false
@kind = internal global ptr null
@value = internal global ptr null
@trace = internal global ptr null
@numbers = internal constant [3 x i8] c"LL\00"
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare void @Py_DecRef(ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)

; Shows how many iterations are done, or ends what is shown for less than 0 of them; returns whether an exception was raised.
define internal i1 @show(i64 %done, i64 %total) nounwind {
entry:
  %goes.on = icmp sge i64 %done, 0
  store i1 %goes.on, ptr @is_shown
  %result = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr inttoptr (i64 $show to ptr), ptr @numbers, i64 %done, i64 %total)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %raised, label %drop
drop:
  call void @Py_DecRef(ptr %result)
  br label %fine
raised:
  ret i1 true
fine:
  ret i1 false
}

; Polls in a loop of which so many iterations of `total` are done; -1 is a total that is not known, and 0 a loop inside another one, where
; the number of the outermost loop is shown.
define i32 @poll(i64 %done, i64 %total) nounwind {
entry:
  %self = call i64 @self()
  %main = load i64, ptr @main
  %ours = icmp eq i64 %self, %main
  br i1 %ours, label %look, label %fine
look:
  %now = call i64 @now()
  %counts = icmp ne i64 %total, 0
  br i1 %counts, label %count, label %time
count:
  %before = load i64, ptr @done
  %other = load i64, ptr @total
  %again = icmp sle i64 %done, %before
  %differs = icmp ne i64 %total, %other
  %begins = or i1 %again, %differs
  %since = load i64, ptr @begin
  %begin = select i1 %begins, i64 %now, i64 %since
  store i64 %begin, ptr @begin
  store i64 %done, ptr @done
  store i64 %total, ptr @total
  br label %time
time:
  %last = load i64, ptr @last
  %passed = sub i64 %now, %last
  %due = icmp ugt i64 %passed, $period
  br i1 %due, label %ask, label %fine
ask:
  store i64 %now, ptr @last
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  %some = icmp ne i32 %raised, 0
  br i1 %some, label %keep, label %watch
watch:
  %number = load i64, ptr @done
  %of = load i64, ptr @total
  %runs = icmp ne i64 %number, $most
  br i1 %runs, label %compare, label %leave
compare:
  %from = load i64, ptr @begin
  %took = sub i64 %now, %from
  %patience = load i64, ptr @patience
  %late = icmp sgt i64 %took, %patience
  %seen = load i64, ptr @shown
  %rested = sub i64 %now, %seen
  %pause = load i64, ptr @pause
  %old = icmp sgt i64 %rested, %pause
  %shows = and i1 %late, %old
  br i1 %shows, label %show, label %leave
show:
  store i64 %now, ptr @shown
  %wrong = call i1 @show(i64 %number, i64 %of)
  br i1 %wrong, label %keep, label %leave
keep:
  call void @PyErr_Fetch(ptr @kind, ptr @value, ptr @trace)
  br label %leave
leave:
  %ends = phi i1 [ false, %watch ], [ false, %compare ], [ false, %show ], [ true, %keep ]
  call void @PyGILState_Release(i32 %state)
  %status = select i1 %ends, i32 $interrupted, i32 0
  ret i32 %status
fine:
  ret i32 0
}

; Ends a loop that has shown its iterations.
define i32 @over() nounwind {
entry:
  %self = call i64 @self()
  %main = load i64, ptr @main
  %ours = icmp eq i64 %self, %main
  br i1 %ours, label %look, label %fine
look:
  store i64 $most, ptr @done
  %is.shown = load i1, ptr @is_shown
  br i1 %is.shown, label %end, label %fine
end:
  %state = call i32 @PyGILState_Ensure()
  %total = load i64, ptr @total
  %wrong = call i1 @show(i64 -1, i64 %total)
  br i1 %wrong, label %keep, label %leave
keep:
  call void @PyErr_Fetch(ptr @kind, ptr @value, ptr @trace)
  br label %leave
leave:
  call void @PyGILState_Release(i32 %state)
  %status = select i1 %wrong, i32 $interrupted, i32 0
  ret i32 %status
fine:
  ret i32 0
}

; Keeps the exception that is raised; the caller has the interpreter lock.
define i32 @keep() nounwind {
  call void @PyErr_Fetch(ptr @kind, ptr @value, ptr @trace)
  ret i32 $interrupted
}

define ptr @raise() nounwind {
  store i64 $most, ptr @done
  %is.shown = load i1, ptr @is_shown
  br i1 %is.shown, label %end, label %restore
end:
  %wrong = call i1 @show(i64 -1, i64 0)
  br label %restore
restore:
  %kind = load ptr, ptr @kind
  %value = load ptr, ptr @value
  %trace = load ptr, ptr @trace
  store ptr null, ptr @kind
  store ptr null, ptr @value
  store ptr null, ptr @trace
  call void @PyErr_Restore(ptr %kind, ptr %value, ptr %trace)
  ret ptr null
}
