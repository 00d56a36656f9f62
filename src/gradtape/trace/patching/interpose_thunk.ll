@owner$number = global %owner zeroinitializer

define ptr @thunk$number($parameters) {
start:
  %result = tail call ptr @$name(ptr @owner$number, $parameters)
  ret ptr %result
}
