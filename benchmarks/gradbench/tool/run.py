"""Speaks GradBench's protocol: one JSON message a line, one answer a line."""

import json
import sys
import traceback
from importlib import import_module

PACKAGE = "gradbench.tools.gradtape"


def answer(message):
    match message["kind"]:
        case "start":
            return {"tool": "gradtape"}
        case "define":
            import_module(f"{PACKAGE}.{message['module']}")
            return {"success": True}
        case "evaluate":
            module = import_module(f"{PACKAGE}.{message['module']}")
            return getattr(module, message["function"]).wrapped(message["input"])
    return {}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        try:
            response = answer(message)
        except Exception as error:
            response = {"success": False, "error": "".join(traceback.format_exception(error))}
        print(json.dumps({"id": message["id"]} | response), flush=True)


if __name__ == "__main__":
    main()
