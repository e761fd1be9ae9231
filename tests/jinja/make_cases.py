#!/usr/bin/env python3
# Writes cases.json: small templates with the result that Jinja2 gives when it is set up as transformers does.
# Made with Jinja2 3.1.6 and Python 3.11. Run: python3 make_cases.py (needs `pip install jinja2==3.1.6`).
import json
import os
from datetime import datetime

from jinja2 import ext, nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from case_sources import CONTEXT, EXPRESSIONS, TEMPLATES


class Generation(ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime(2026, 11, 20, 12, 0, 0).strftime(f)
    return env


def main():
    env = environment()
    cases = []
    expressions = "\n".join(EXPRESSIONS).replace("\\\ncontinued", "\\\x00continued").split("\n")
    for source in ["{{ " + e.replace("\x00", "\n") + " }}" for e in expressions] + TEMPLATES:
        case = {"template": source}
        try:
            case["expect"] = env.from_string(source).render(**CONTEXT)
        except Exception as error:
            case["error"] = f"{type(error).__name__}: {error}"
        cases.append(case)
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "cases.json"), "w", encoding="utf-8") as out:
        out.write('{\n"context": ' + json.dumps(CONTEXT, ensure_ascii=False) + ',\n"cases": [\n')
        out.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases))
        out.write("\n]\n}\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors")


if __name__ == "__main__":
    main()
