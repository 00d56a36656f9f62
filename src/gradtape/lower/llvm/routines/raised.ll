; A function inside of one that returns -1 where a function of SciPy has set an error, so that the interpreter raises it.
declare i32 @"gradtape.raised"()

define ${linkage}i32 @$name($parameters) nounwind {
  %status = call i32 @$program($arguments)
  %raised = call i32 @"gradtape.raised"()
  %fine = icmp eq i32 %raised, 0
  %result = select i1 %fine, i32 %status, i32 -1
  ret i32 %result
}
