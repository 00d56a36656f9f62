define internal ptr @$name(ptr %owner, $parameters) {
start:
  %on = load i64, ptr @recording
  %quiet = icmp eq i64 %on, 0
  br i1 %quiet, label %original, label %look, !prof !{!"branch_weights", i32 2000, i32 1}
look:
  %key = load ptr, ptr %owner
  $unpack
  %asked = call i1 @$mode(ptr %args, i64 %all)
  br i1 %asked, label %ask, label %original
ask:
  %answer = call ptr @ask(ptr $key, ptr $self, ptr %args, i64 %count, i64 %named, ptr $names, ptr $keywords)
  %declined = icmp eq ptr %answer, @declined
  br i1 %declined, label %original, label %end
end:
  ret ptr %answer
original:
  %at = getelementptr i8, ptr %owner, i64 8
  %function = load ptr, ptr %at
  %result = tail call ptr %function($parameters)
  ret ptr %result
}
