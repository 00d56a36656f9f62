declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare i64 @PyDict_Size(ptr)
declare void @PyErr_Clear()
declare ptr @PyFunction_GetCode(ptr)
declare ptr @PyFunction_GetDefaults(ptr)
declare ptr @PyFunction_GetKwDefaults(ptr)
declare ptr @PyMethod_Function(ptr)
declare ptr @PyMethod_Self(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)
declare ptr @_PyObject_GetDictPtr(ptr)
@gt.missed = external global i8
declare i32 @memcmp(ptr, ptr, i64)

define ptr @missed(ptr %self, ptr %args, i64 %count, ptr %names) {
  call void @Py_IncRef(ptr @gt.missed)
  ret ptr @gt.missed
}

; Return the arguments as a tuple.
define ptr @collected(ptr %self, ptr %args, i64 %countf, ptr %names) {
entry:
  %count = and i64 %countf, 9223372036854775807
  %made = call ptr @PyTuple_New(i64 %count)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %end, label %fill
fill:
  %k = phi i64 [0, %entry], [%k.next, %one]
  %filled = icmp eq i64 %k, %count
  br i1 %filled, label %end, label %one
one:
  %item_at = getelementptr ptr, ptr %args, i64 %k
  %item = load ptr, ptr %item_at
  call void @Py_IncRef(ptr %item)
  %set = call i32 @PyTuple_SetItem(ptr %made, i64 %k, ptr %item)
  %k.next = add i64 %k, 1
  br label %fill
end:
  ret ptr %made
}

; Words of the state: the entry behind, arguments, checks and their end, registers, how many are passed on (-1: the arguments), their places.
define ptr @checked(ptr %self, ptr %args, i64 %countf, ptr %names) {
entry:
  %position = alloca i64
  %key = alloca ptr
  %state_at = getelementptr i8, ptr %self, i64 $state
  %state = load ptr, ptr %state_at
  %plain = icmp eq ptr %names, null
  %count = and i64 %countf, 9223372036854775807
  %expected_at = getelementptr i64, ptr %state, i64 1
  %expected = load i64, ptr %expected_at
  %fits = icmp eq i64 %count, %expected
  %both = and i1 %plain, %fits
  br i1 %both, label %begin, label %fallback

begin:
  %checks_at = getelementptr ptr, ptr %state, i64 2
  %checks = load ptr, ptr %checks_at
  %end_at = getelementptr ptr, ptr %state, i64 3
  %end = load ptr, ptr %end_at
  %registers_at = getelementptr ptr, ptr %state, i64 4
  %registers = load ptr, ptr %registers_at
  br label %loop

loop:
  %check = phi ptr [%checks, %begin], [%after, %next], [%beyond, %skip]
  %done = icmp eq ptr %check, %end
  br i1 %done, label %matched, label %read

read:
  %kind = load i64, ptr %check
  %a_at = getelementptr i64, ptr %check, i64 1
  %a = load i64, ptr %a_at
  %b_at = getelementptr i64, ptr %check, i64 2
  %b = load ptr, ptr %b_at
  %number = ptrtoint ptr %b to i64
  switch i64 %kind, label %fallback [
    i64 $read_known, label %read.known    i64 $read_cell, label %read.cell     i64 $read_entry, label %read.entry
    i64 $read_list, label %read.list     i64 $read_tuple, label %read.tuple    i64 $read_fields, label %read.fields
    i64 $read_argument, label %read.argument i64 $read_code, label %read.code     i64 $read_defaults, label %read.defaults
    i64 $read_kwdefaults, label %read.kwdefaults  i64 $read_method_function, label %read.function  i64 $read_method_self, label %read.self
    i64 $read_attribute, label %read.attribute  i64 $read_version, label %read.version   i64 $read_remember, label %remember ]

read.known:
  %known_at = getelementptr ptr, ptr %registers, i64 %a
  %known = load ptr, ptr %known_at
  br label %test

read.cell:
  %cell = inttoptr i64 %a to ptr
  %cell_at = getelementptr i8, ptr %cell, i64 $head
  %held = load ptr, ptr %cell_at
  br label %test

read.entry:
  %dict_at = getelementptr ptr, ptr %registers, i64 %a
  %dict = load ptr, ptr %dict_at
  %item = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %b)
  br label %test

read.list:
  %list_at = getelementptr ptr, ptr %registers, i64 %a
  %list = load ptr, ptr %list_at
  %length_at = getelementptr i8, ptr %list, i64 $head
  %length = load i64, ptr %length_at
  %within = icmp ult i64 %number, %length
  br i1 %within, label %list.item, label %fallback
list.item:
  %items_at = getelementptr i8, ptr %list, i64 $list_items
  %items = load ptr, ptr %items_at
  %element_at = getelementptr ptr, ptr %items, i64 %number
  %element = load ptr, ptr %element_at
  br label %test

read.tuple:
  %tuple_at = getelementptr ptr, ptr %registers, i64 %a
  %tuple = load ptr, ptr %tuple_at
  %tuple_items = getelementptr i8, ptr %tuple, i64 $tuple_items
  %part_at = getelementptr ptr, ptr %tuple_items, i64 %number
  %part = load ptr, ptr %part_at
  br label %test

read.fields:
  %object_at = getelementptr ptr, ptr %registers, i64 %a
  %object = load ptr, ptr %object_at
  %fields_at = call ptr @_PyObject_GetDictPtr(ptr %object)
  %has_fields = icmp ne ptr %fields_at, null
  br i1 %has_fields, label %fields.load, label %fallback
fields.load:
  %fields = load ptr, ptr %fields_at
  br label %test

read.argument:
  %argument_at = getelementptr ptr, ptr %args, i64 %a
  %argument = load ptr, ptr %argument_at
  br label %test

read.code:
  %coded_at = getelementptr ptr, ptr %registers, i64 %a
  %coded = load ptr, ptr %coded_at
  %code = call ptr @PyFunction_GetCode(ptr %coded)
  br label %test

read.defaults:
  %defaulted_at = getelementptr ptr, ptr %registers, i64 %a
  %defaulted = load ptr, ptr %defaulted_at
  %defaults = call ptr @PyFunction_GetDefaults(ptr %defaulted)
  br label %test

read.kwdefaults:
  %named_at = getelementptr ptr, ptr %registers, i64 %a
  %named = load ptr, ptr %named_at
  %kwdefaults = call ptr @PyFunction_GetKwDefaults(ptr %named)
  br label %test

read.function:
  %method_at = getelementptr ptr, ptr %registers, i64 %a
  %method = load ptr, ptr %method_at
  %function = call ptr @PyMethod_Function(ptr %method)
  br label %test

read.self:
  %bound_at = getelementptr ptr, ptr %registers, i64 %a
  %bound = load ptr, ptr %bound_at
  %owner = call ptr @PyMethod_Self(ptr %bound)
  br label %test

read.attribute:
  %holder_at = getelementptr ptr, ptr %registers, i64 %a
  %holder = load ptr, ptr %holder_at
  %attribute = call ptr @PyObject_GetAttr(ptr %holder, ptr %b)
  %found = icmp ne ptr %attribute, null
  br i1 %found, label %attribute.found, label %attribute.lost
attribute.found:
  call void @Py_DecRef(ptr %attribute)
  br label %test
attribute.lost:
  call void @PyErr_Clear()
  br label %test

read.version:
  %versioned_at = getelementptr ptr, ptr %registers, i64 %a
  %versioned = load ptr, ptr %versioned_at
  %version_at = getelementptr i8, ptr %versioned, i64 $dict_version
  %version = load i64, ptr %version_at
  %former_at = getelementptr i64, ptr %check, i64 4
  %former = load i64, ptr %former_at
  %unchanged = icmp eq i64 %version, %former
  br i1 %unchanged, label %skip, label %stale
stale:
  ; What the registers hold from here on belongs to no version until all checks have run.
  store i64 -1, ptr %former_at
  br label %next
skip:
  %skipped = add i64 %number, 1
  %bytes = mul i64 %skipped, $check
  %beyond = getelementptr i8, ptr %check, i64 %bytes
  br label %loop

remember:
  %seen_at = getelementptr ptr, ptr %registers, i64 %a
  %seen = load ptr, ptr %seen_at
  %present_at = getelementptr i8, ptr %seen, i64 $dict_version
  %present = load i64, ptr %present_at
  %note_at = getelementptr i64, ptr %b, i64 4
  store i64 %present, ptr %note_at
  br label %next

test:
  %value = phi ptr [%known, %read.known], [%held, %read.cell], [%item, %read.entry], [%element, %list.item], [%part, %read.tuple],
    [%fields, %fields.load], [%argument, %read.argument], [%code, %read.code], [%defaults, %read.defaults],
    [%kwdefaults, %read.kwdefaults], [%function, %read.function], [%owner, %read.self], [%attribute, %attribute.found],
    [null, %attribute.lost]
  %out_at = getelementptr i64, ptr %check, i64 7
  %out = load i64, ptr %out_at
  %register = getelementptr ptr, ptr %registers, i64 %out
  store ptr %value, ptr %register
  %test_at = getelementptr i64, ptr %check, i64 3
  %wants = load i64, ptr %test_at
  %c_at = getelementptr i64, ptr %check, i64 4
  %c = load ptr, ptr %c_at
  %d_at = getelementptr i64, ptr %check, i64 5
  %d = load i64, ptr %d_at
  %empty = icmp eq ptr %value, null
  %nullable = icmp eq i64 %wants, $test_absent
  %any = icmp eq i64 %wants, $test_nothing
  %allowed = or i1 %nullable, %any
  br i1 %empty, label %nothing, label %something
nothing:
  br i1 %allowed, label %next, label %fallback
something:
  %kind_at = getelementptr i8, ptr %value, i64 $type
  %class = load ptr, ptr %kind_at
  %is_class = icmp eq ptr %class, %c
  switch i64 %wants, label %fallback [
    i64 $test_present, label %next        i64 $test_nothing, label %next       i64 $test_is, label %test.is
    i64 $test_equal, label %test.equal  i64 $test_type, label %test.type  i64 $test_keys, label %test.keys
    i64 $test_length, label %test.length i64 $test_register, label %test.register  i64 $test_version_tag, label %test.tag
    i64 $test_content, label %test.content  i64 $test_bits, label %test.bits ]

test.is:
  %same = icmp eq ptr %value, %c
  br i1 %same, label %next, label %fallback

test.equal:
  %identical = icmp eq ptr %value, %c
  br i1 %identical, label %next, label %test.equal.type
test.equal.type:
  %wanted = inttoptr i64 %d to ptr
  %alike = icmp eq ptr %class, %wanted
  br i1 %alike, label %test.equal.compare, label %fallback
test.equal.compare:
  %compared = call i32 @PyObject_RichCompareBool(ptr %value, ptr %c, i32 2)
  %equal = icmp eq i32 %compared, 1
  br i1 %equal, label %next, label %fallback

test.type:
  br i1 %is_class, label %next, label %fallback

test.length:
  %size_at = getelementptr i8, ptr %value, i64 $head
  br i1 %is_class, label %test.length.compare, label %fallback
test.length.compare:
  %size = load i64, ptr %size_at
  %as_long = icmp eq i64 %size, %d
  br i1 %as_long, label %next, label %fallback

test.keys:
  br i1 %is_class, label %keys.count, label %fallback
keys.count:
  %entries = call i64 @PyDict_Size(ptr %value)
  %as_many = icmp eq i64 %entries, %d
  br i1 %as_many, label %keys.begin, label %fallback
keys.begin:
  store i64 0, ptr %position
  %keys_at = getelementptr i64, ptr %check, i64 6
  %keys = load ptr, ptr %keys_at
  br label %keys.loop
keys.loop:
  %k = phi i64 [0, %keys.begin], [%k.next, %keys.same]
  %more = icmp ult i64 %k, %d
  br i1 %more, label %keys.step, label %next
keys.step:
  %stepped = call i32 @PyDict_Next(ptr %value, ptr %position, ptr %key, ptr null)
  %one = load ptr, ptr %key
  %other_at = getelementptr ptr, ptr %keys, i64 %k
  %other = load ptr, ptr %other_at
  %agree = icmp eq ptr %one, %other
  br i1 %agree, label %keys.same, label %fallback
keys.same:
  %k.next = add i64 %k, 1
  br label %keys.loop

test.register:
  %place = ptrtoint ptr %c to i64
  %twin_at = getelementptr ptr, ptr %registers, i64 %place
  %twin = load ptr, ptr %twin_at
  %twins = icmp eq ptr %value, %twin
  br i1 %twins, label %next, label %fallback

test.tag:
  %tag_at = getelementptr i8, ptr %value, i64 $type_version
  %tag = load i32, ptr %tag_at
  %tag_long = zext i32 %tag to i64
  %tag_wanted = ptrtoint ptr %c to i64
  %tagged = icmp eq i64 %tag_long, %tag_wanted
  %valid = icmp ne i32 %tag, 0
  %unpatched = and i1 %tagged, %valid
  br i1 %unpatched, label %next, label %fallback

test.bits:
  br i1 %is_class, label %bits.compare, label %fallback
bits.compare:
  %bits_at = getelementptr i8, ptr %value, i64 $head
  %bits = load i64, ptr %bits_at
  %exact = icmp eq i64 %bits, %d
  br i1 %exact, label %next, label %fallback

test.content:
  %known_kind_at = getelementptr i8, ptr %c, i64 $type
  %known_kind = load ptr, ptr %known_kind_at
  %array = icmp eq ptr %class, %known_kind
  br i1 %array, label %content.layout, label %fallback
content.layout:
  %descr_at = getelementptr i8, ptr %value, i64 $descr
  %descr = load ptr, ptr %descr_at
  %known_descr_at = getelementptr i8, ptr %c, i64 $descr
  %known_descr = load ptr, ptr %known_descr_at
  %same_descr = icmp eq ptr %descr, %known_descr
  %rank_at = getelementptr i8, ptr %value, i64 $ndim
  %rank = load i32, ptr %rank_at
  %known_rank_at = getelementptr i8, ptr %c, i64 $ndim
  %known_rank = load i32, ptr %known_rank_at
  %same_rank = icmp eq i32 %rank, %known_rank
  %flags_at = getelementptr i8, ptr %value, i64 $flags
  %flags = load i32, ptr %flags_at
  %contiguous = and i32 %flags, 1
  %is_contiguous = icmp eq i32 %contiguous, 1
  %layout1 = and i1 %same_descr, %same_rank
  %layout = and i1 %layout1, %is_contiguous
  br i1 %layout, label %content.shape, label %fallback
content.shape:
  %shape_at = getelementptr i8, ptr %value, i64 $dimensions
  %shape = load ptr, ptr %shape_at
  %known_shape_at = getelementptr i8, ptr %c, i64 $dimensions
  %known_shape = load ptr, ptr %known_shape_at
  %rank_long = sext i32 %rank to i64
  %shape_bytes = shl i64 %rank_long, 3
  %shapes = call i32 @memcmp(ptr %shape, ptr %known_shape, i64 %shape_bytes)
  %same_shape = icmp eq i32 %shapes, 0
  br i1 %same_shape, label %content.compare, label %fallback
content.compare:
  %data_at = getelementptr i8, ptr %value, i64 $data
  %data = load ptr, ptr %data_at
  %known_data_at = getelementptr i8, ptr %c, i64 $data
  %known_data = load ptr, ptr %known_data_at
  %contents = call i32 @memcmp(ptr %data, ptr %known_data, i64 %d)
  %same_content = icmp eq i32 %contents, 0
  br i1 %same_content, label %next, label %fallback

next:
  %after = getelementptr i8, ptr %check, i64 $check
  br label %loop

matched:
  %behind = load ptr, ptr %state
  %entry_at = getelementptr i8, ptr %behind, i64 $entry
  %target = load ptr, ptr %entry_at
  %passed_at = getelementptr i64, ptr %state, i64 5
  %passed = load i64, ptr %passed_at
  %straight = icmp slt i64 %passed, 0
  br i1 %straight, label %tail, label %collect

tail:
  %answered = musttail call ptr %target(ptr %behind, ptr %args, i64 %countf, ptr %names)
  ret ptr %answered

collect:
  %places_at = getelementptr ptr, ptr %state, i64 6
  %places = load ptr, ptr %places_at
  %room = add i64 %passed, 1
  %all = alloca ptr, i64 %room
  %vector = getelementptr ptr, ptr %all, i64 1
  br label %fill
fill:
  %i = phi i64 [0, %collect], [%i.next, %fill.next]
  %filled = icmp eq i64 %i, %passed
  br i1 %filled, label %call, label %fill.one
fill.one:
  %where_at = getelementptr i64, ptr %places, i64 %i
  %where = load i64, ptr %where_at
  %from_args = icmp slt i64 %where, 0
  %flipped = xor i64 %where, -1
  %base = select i1 %from_args, ptr %args, ptr %registers
  %index = select i1 %from_args, i64 %flipped, i64 %where
  %source_at = getelementptr ptr, ptr %base, i64 %index
  %source = load ptr, ptr %source_at
  call void @Py_IncRef(ptr %source)
  %slot = getelementptr ptr, ptr %vector, i64 %i
  store ptr %source, ptr %slot
  br label %fill.next
fill.next:
  %i.next = add i64 %i, 1
  br label %fill

call:
  %result = call ptr %target(ptr %behind, ptr %vector, i64 %passed, ptr null)
  br label %drop
drop:
  %j = phi i64 [0, %call], [%j.next, %drop.one]
  %dropped = icmp eq i64 %j, %passed
  br i1 %dropped, label %answer, label %drop.one
drop.one:
  %old_at = getelementptr ptr, ptr %vector, i64 %j
  %old = load ptr, ptr %old_at
  call void @Py_DecRef(ptr %old)
  %j.next = add i64 %j, 1
  br label %drop
answer:
  %refused = icmp eq ptr %result, @gt.missed
  br i1 %refused, label %refusal, label %return
return:
  ret ptr %result
refusal:
  call void @Py_DecRef(ptr %result)
  br label %fallback

fallback:
  %fallback_at = getelementptr i8, ptr %self, i64 $fallback
  %python = load ptr, ptr %fallback_at
  %slow = musttail call ptr @PyObject_Vectorcall(ptr %python, ptr %args, i64 %countf, ptr %names)
  ret ptr %slow
}
