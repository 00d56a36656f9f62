%owner = type { ptr, ptr } ; the key, and its C function

@recording = external global i64
@hooks = external global i8
@array = external global i8
@list = external global i8
@tuple = external global i8
@traced_type0 = external global i8
@traced_type1 = external global i8
@traced_type2 = external global i8
@traced_type3 = external global i8
@declined = external global i8
declare ptr @PyDict_GetItem(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_VectorcallDict(ptr, ptr, i64, ptr)
declare void @Py_DecRef(ptr)
$declarations
declare ptr @PyThreadState_Get()
declare ptr @_PyObject_MakeTpCall(ptr, ptr, ptr, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Whether an object is one of those that the hook follows, or a list or tuple with one inside.
define internal i1 @follows(ptr %object, i64 %depth) nounwind {
start:
  %type_at = getelementptr i8, ptr %object, i64 $type
  %type = load ptr, ptr %type_at
  %a = icmp eq ptr %type, @traced_type0
  %b = icmp eq ptr %type, @traced_type1
  %c = icmp eq ptr %type, @traced_type2
  %d = icmp eq ptr %type, @traced_type3
  %ab = or i1 %a, %b
  %cd = or i1 %c, %d
  %any = or i1 %ab, %cd
  br i1 %any, label %yes, label %other
other:
  %inside = call i1 @holds(ptr %object, i64 %depth)
  ret i1 %inside
yes:
  ret i1 true
}

; Whether an object is a list or tuple with one inside.
define internal i1 @holds(ptr %object, i64 %depth) nounwind {
start:
  %type_at = getelementptr i8, ptr %object, i64 $type
  %type = load ptr, ptr %type_at
  %is_tuple = icmp eq ptr %type, @tuple
  %is_list = icmp eq ptr %type, @list
  %is_sequence = or i1 %is_tuple, %is_list
  %deep = icmp ne i64 %depth, 0
  %open = and i1 %is_sequence, %deep
  %less = sub i64 %depth, 1
  br i1 %open, label %within, label %no
within:
  br i1 %is_tuple, label %tuple, label %list
tuple:
  %items = getelementptr i8, ptr %object, i64 $tuple_items
  %size = call i64 @size(ptr %object)
  %any = call i1 @any_follows(ptr %items, i64 %size, i64 %less)
  ret i1 %any
list:
  %any_item = call i1 @list_holds(ptr %object, i64 %less, i1 false)
  ret i1 %any_item
no:
  ret i1 false
}

; Whether an item of a list is traced or holds a traced one, or, with %inside, whether one holds one.
define internal i1 @list_holds(ptr %list, i64 %depth, i1 %inside) nounwind {
start:
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %looked ]
  %more = add i64 %k, 1
  %size = call i64 @size(ptr %list)
  %done = icmp sge i64 %k, %size
  br i1 %done, label %no, label %look
look:
  $item
  br i1 %inside, label %look_inside, label %look_at
look_at:
  %follows = call i1 @follows(ptr %item, i64 %depth)
  br label %looked
look_inside:
  %holds = call i1 @holds(ptr %item, i64 %depth)
  br label %looked
looked:
  %found = phi i1 [ %follows, %look_at ], [ %holds, %look_inside ]
  $looked
  br i1 %found, label %yes, label %next
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i1 @any_follows(ptr %items, i64 %count, i64 %depth) nounwind {
start:
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %look ]
  %done = icmp sge i64 %k, %count
  br i1 %done, label %no, label %look
look:
  %at = getelementptr ptr, ptr %items, i64 %k
  %item = load ptr, ptr %at
  %found = call i1 @follows(ptr %item, i64 %depth)
  %more = add i64 %k, 1
  br i1 %found, label %yes, label %next
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i1 @always(ptr %args, i64 %count) nounwind {
start:
  ret i1 true
}

; All but a call with one ndarray.
define internal i1 @other(ptr %args, i64 %count) nounwind {
start:
  %single = icmp eq i64 %count, 1
  br i1 %single, label %look, label %yes
look:
  %arg = load ptr, ptr %args
  %type_at = getelementptr i8, ptr %arg, i64 $type
  %type = load ptr, ptr %type_at
  %differs = icmp ne ptr %type, @array
  ret i1 %differs
yes:
  ret i1 true
}

; What a C function would convert that does not ask its arguments who they are.
define internal i1 @anywhere(ptr %args, i64 %count) nounwind {
start:
  %found = call i1 @any_follows(ptr %args, i64 %count, i64 32)
  ret i1 %found
}

; What one would convert that does.
define internal i1 @nested(ptr %args, i64 %count) nounwind {
start:
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %look ]
  %done = icmp sge i64 %k, %count
  br i1 %done, label %no, label %look
look:
  %at = getelementptr ptr, ptr %args, i64 %k
  %arg = load ptr, ptr %at
  %found = call i1 @holds(ptr %arg, i64 32)
  %more = add i64 %k, 1
  br i1 %found, label %yes, label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; What one would convert whose list is a sequence of arrays.
define internal i1 @within(ptr %args, i64 %count) nounwind {
start:
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %go ]
  %done = icmp sge i64 %k, %count
  br i1 %done, label %no, label %look
look:
  %at = getelementptr ptr, ptr %args, i64 %k
  %arg = load ptr, ptr %at
  %type_at = getelementptr i8, ptr %arg, i64 $type
  %type = load ptr, ptr %type_at
  %is_tuple = icmp eq ptr %type, @tuple
  br i1 %is_tuple, label %tuple, label %other
other:
  %is_list = icmp eq ptr %type, @list
  br i1 %is_list, label %list, label %go
tuple:
  %items = getelementptr i8, ptr %arg, i64 $tuple_items
  %size = call i64 @size(ptr %arg)
  %in_tuple = call i1 @nested(ptr %items, i64 %size)
  br i1 %in_tuple, label %yes, label %go
list:
  %in_list = call i1 @list_holds(ptr %arg, i64 32, i1 true)
  br i1 %in_list, label %yes, label %go
go:
  %more = add i64 %k, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Ask the hook: it is given the key, then `self` where it is not null, then the arguments; those with names by a tuple of the names, or
; by a dict. NotImplemented means: call the C function.
define internal ptr @ask(ptr %key, ptr %self, ptr %args, i64 %count, i64 %named, ptr %names, ptr %keywords) {
start:
  %all = add i64 %count, %named
  %room = add i64 %all, 2
  %list = alloca ptr, i64 %room
  store ptr %key, ptr %list
  %second = getelementptr ptr, ptr %list, i64 1
  store ptr %self, ptr %second
  %alone = icmp eq ptr %self, null
  %skip = select i1 %alone, i64 1, i64 2
  %rest = getelementptr ptr, ptr %list, i64 %skip
  %bytes = mul i64 %all, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %bytes, i1 false)
  %given = add i64 %count, %skip
  %hook = call ptr @PyDict_GetItem(ptr @hooks, ptr %key)
  %unnamed = icmp eq ptr %keywords, null
  br i1 %unnamed, label %by_tuple, label %by_dict
by_tuple:
  %one = call ptr @PyObject_Vectorcall(ptr %hook, ptr %list, i64 %given, ptr %names)
  br label %answered
by_dict:
  %other = call ptr @PyObject_VectorcallDict(ptr %hook, ptr %list, i64 %given, ptr %keywords)
  br label %answered
answered:
  %answer = phi ptr [ %one, %by_tuple ], [ %other, %by_dict ]
  %is_none = icmp eq ptr %answer, @declined
  br i1 %is_none, label %drop, label %end
drop:
  call void @Py_DecRef(ptr %answer)
  br label %end
end:
  ret ptr %answer
}

; Call an object that has no vectorcall pointer but ours.
define ptr @by_type(ptr %callee, ptr %args, i64 %flags, ptr %names) {
start:
  %count = and i64 %flags, 9223372036854775807
  %state = call ptr @PyThreadState_Get()
  %result = call ptr @_PyObject_MakeTpCall(ptr %state, ptr %callee, ptr %args, i64 %count, ptr %names)
  ret ptr %result
}

; The length of a tuple or list; 0 for a null pointer.
define internal i64 @size(ptr %sequence) nounwind {
start:
  %null = icmp eq ptr %sequence, null
  br i1 %null, label %none, label %some
none:
  ret i64 0
some:
  %at = getelementptr i8, ptr %sequence, i64 $size
  %size = load i64, ptr %at
  ret i64 %size
}
