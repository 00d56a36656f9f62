declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()

define i32 @raised() nounwind {
  %state = call i32 @PyGILState_Ensure()
  %error = call ptr @PyErr_Occurred()
  %some = icmp ne ptr %error, null
  br i1 %some, label %clear, label %leave
clear:
  call void @PyErr_Clear()
  br label %leave
leave:
  call void @PyGILState_Release(i32 %state)
  %result = zext i1 %some to i32
  ret i32 %result
}
