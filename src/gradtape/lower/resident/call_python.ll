@types = internal constant [3 x i8] c"yK\00"
declare i32 @keep()
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare i64 @PyLong_AsLongLong(ptr)
declare void @Py_DecRef(ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)

; Calls a function of Python with a text and the address of a table; keeps what it raises.
define i32 @call_python(ptr %text, ptr %table) nounwind {
  %state = call i32 @PyGILState_Ensure()
  %address = ptrtoint ptr %table to i64
  %result = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr inttoptr (i64 $run to ptr), ptr @types, ptr %text, i64 %address)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %keep, label %read
keep:
  %interrupted = call i32 @keep()
  br label %leave
read:
  %number = call i64 @PyLong_AsLongLong(ptr %result)
  %failed = trunc i64 %number to i32
  call void @Py_DecRef(ptr %result)
  br label %leave
leave:
  %status = phi i32 [ %interrupted, %keep ], [ %failed, %read ]
  call void @PyGILState_Release(i32 %state)
  ret i32 %status
}
