@main = global i64 0
@last = internal global i64 0
@kind = internal global ptr null
@value = internal global ptr null
@trace = internal global ptr null
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)

define i32 @poll() nounwind {
entry:
  %self = call i64 @self()
  %main = load i64, ptr @main
  %ours = icmp eq i64 %self, %main
  br i1 %ours, label %look, label %fine
look:
  %now = call i64 @now()
  %last = load i64, ptr @last
  %passed = sub i64 %now, %last
  %due = icmp ugt i64 %passed, $period
  br i1 %due, label %ask, label %fine
ask:
  store i64 %now, ptr @last
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  %some = icmp ne i32 %raised, 0
  br i1 %some, label %keep, label %leave
keep:
  call void @PyErr_Fetch(ptr @kind, ptr @value, ptr @trace)
  br label %leave
leave:
  call void @PyGILState_Release(i32 %state)
  %result = select i1 %some, i32 $interrupted, i32 0
  ret i32 %result
fine:
  ret i32 0
}

define ptr @raise() nounwind {
  %kind = load ptr, ptr @kind
  %value = load ptr, ptr @value
  %trace = load ptr, ptr @trace
  store ptr null, ptr @kind
  store ptr null, ptr @value
  store ptr null, ptr @trace
  call void @PyErr_Restore(ptr %kind, ptr %value, ptr %trace)
  ret ptr null
}
