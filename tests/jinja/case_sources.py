# The cases of make_cases.py: what templates see, expressions one a line, whole templates.
# Data alone; every case is a template of its own.
CONTEXT = {
    "a": 7, "b": -3, "f": 2.5, "s": "Hello World", "e": "", "u": "Grüße, Ωmega ☃ 日本", "n": None, "t": True,
    "list": [3, 1, 2], "words": ["pear", "Apple", "fig"], "nested": [[1, 2], [3, [4]]],
    "d": {"x": 1, "y": "two", "z": [1, {"k": None}]}, "empty": {},
    "people": [{"name": "Ann", "age": 31, "tag": {"id": 2}}, {"name": "bob", "age": 25, "tag": {"id": 1}},
               {"name": "Cy", "tag": {"id": 3}}],
    "html": "<a href=\"x\">&'</a>", "lines": "one\ntwo\n\nthree\n", "padded": "  \t x y \n ", "big": 123456789012,
    "items_key": {"items": 5, "get": 6},
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
2 ** 3 ** 2
-2 ** 2
7 // 2 ~ ' ' ~ -7 // 2 ~ ' ' ~ 7 % 3 ~ ' ' ~ -7 % 3 ~ ' ' ~ 7 % -3
7 / 2
6 / 3
1e3
1.5e-7
1e16
123456789.125
0.1 + 0.2
-0.0
7.5 // 2
-7.5 // 2
7.5 % -2
2 ** -1
2 ** 0.5
10 ** 18
0x1F + 0b101 + 0o17 + 1_000
true + 1
True and 'x'
'' or 'y'
0 or none
not a
not a == 7
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 != 1
1 == 1.0
true == 1
'a' < 'b'
[1, 2] < [1, 3]
(1, 2) == [1, 2]
[1, [2, 3]] == [1, [2, 3]]
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
'ell' in s
'z' not in s
3 in list
1 in (1, 2)
'x' in d
2 in d
'q' in missing
1 in none
s ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'a']
'a' 'b' "c"
'tab\there' ~ 'q\'q' ~ "d\"d" ~ '\x41\u00e9\101' ~ '\q'
'line\
continued'
[1, 'two', 3.0, none, true, [4], (5,), (), {'k': 'v'}]
{'a': 'it\'s', 'b': "q\"q", 'c': 'both \' and "'}
['\n\t\\', 'é☃', '\x00\x7f']
(1, 2)
(1,)
()
[]
{}
'yes' if a > 5 else 'no'
'yes' if a > 50
('yes' if a > 50) is defined
1 if false else 2 if false else 3
a if b else c
missing
missing.x
missing['x']
d.missing
d.missing.x
d.missing is defined
d.x
d['y']
d['x'] + d.x
d.z[1].k
d.z[-1]['k'] is none
d.z[5]
d.z[5] is defined
none.x
none.x is defined
items_key.items is defined
items_key['items']
items_key.get('items')
list[0]
list[-1]
list[1:]
list[:-1]
list[::-1]
list[::2]
list[5:]
list[-100:2]
nested[1][1][0]
nested.1.0
s[0]
s[-1]
s[1:4]
s[::-1]
s[-3:]
s[::3]
s[20:]
u[2:5]
u[-2:]
u[::-1]
u|length
u.find('☃')
u|upper
u|lower
u|title
u|capitalize
'straße'|upper
'ÀÉÎ'|lower
s|upper ~ s|lower ~ s|title ~ s|capitalize
'hELLO wORLD-foo (bar) [baz] it\'s'|title
'hELLO wORLD-foo (bar) it\'s'.title()
padded|trim
'xxhixx'|trim('x')
none|trim
missing|trim
padded.strip() ~ '|' ~ padded.lstrip() ~ '|' ~ padded.rstrip() ~ '|'
'xyabcxy'.strip('xy') ~ 'xyabcxy'.lstrip('yx') ~ 'xyabcxy'.rstrip('y')
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
'  a  b   c '.split()
'  a  b   c '.split(none, 1)
'  a  b   c '.rsplit(none, 1)
''.split()
''.split(',')
'a<x>b</x>c'.split('</x>')[-1]
lines.splitlines()
lines.splitlines(true)
'a.b.c'.partition('.')
'a.b.c'.rpartition('.')
'abc'.partition('.')
s.startswith('Hell') and s.endswith('ld')
s.startswith(('x', 'He'))
s.startswith('W', 6)
s.replace('l', 'L')
s.replace('l', 'L', 1)
'abc'.replace('', '-')
s|replace('o', '0')
s|replace('l', '1', 2)
5|replace('5', 'five')
s.find('o') ~ s.find('o', 5) ~ s.rfind('o') ~ s.find('q') ~ s.index('W')
s.count('l') ~ s.count('l', 4) ~ 'aaa'.count('aa')
'-'.join(['a', 'b'])
'-'.join([1])
'abc'.upper() ~ 'ABC'.lower() ~ 'abc'.capitalize() ~ 'aBc'.swapcase()
'12'.isdigit() ~ 'ab'.isalpha() ~ 'a1'.isalnum() ~ ' '.isspace() ~ 'ab'.islower() ~ 'AB'.isupper()
'x'.center(5, '*') ~ 'x'.ljust(3) ~ '|' ~ 'x'.rjust(3) ~ '42'.zfill(5) ~ '-42'.zfill(5)
'xx'.center(5) ~ '|'
'foobar'.removeprefix('foo') ~ 'foobar'.removesuffix('bar')
'{} {}'.format('a', 1)
'{1} {0} {k}'.format('a', 'b', k=2)
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:x}'.format('a', 'b', 'c', 42, 3.14159, 255)
'{:,}'.format(1234567)
'{!r}'.format('a')
'{{}}'.format()
'%s is %d or %.2f' % ('a', 3, 2.5)
'%s' % 'x'
'%(k)s' % {'k': 1}
'%5s|%-5s|%05d|%x' % ('a', 'b', 42, 255)
'%s %s'|format('a', 1)
'ab' * 3
[1] * 2 + [2]
list|length ~ d|length ~ s|length ~ list|count
list|first ~ list|last ~ s|first ~ s|last
[]|first is defined
list|sort
list|sort(reverse=true)
words|sort
words|sort(case_sensitive=true)
people|sort(attribute='tag.id')|map(attribute='name')|list
people|map(attribute='age')|list
people|map(attribute='age', default=0)|list
people|map(attribute='age', default=0)|sum
words|map('upper')|join(' ')
words|map('replace', 'p', 'P')|list
words|map('length')|list
people|selectattr('age')|map(attribute='name')|list
people|selectattr('age', 'defined')|map(attribute='name')|join(',')
people|rejectattr('age', 'defined')|map(attribute='name')|join(',')
people|selectattr('name', 'equalto', 'bob')|list
people|selectattr('age', 'gt', 30)|list|length
list|select('odd')|list
list|reject('odd')|list
list|select('gt', 1)|list
[0, 1, '', 'a', none]|select|list
list|reverse|list
s|reverse
[1, 2, 1, 3, 2]|unique|list
['a', 'A', 'b']|unique|list
['a', 'A', 'b']|unique(case_sensitive=true)|list
list|min ~ list|max ~ list|sum
words|min ~ words|max
people|selectattr('age', 'defined')|sum(attribute='age')
people|selectattr('age', 'defined')|max(attribute='age')
[]|max is defined
list|join
list|join(', ')
people|join(', ', attribute='name')
words|join(u)
d|list
d|items|list
d.items()|list
d.keys()|list
d.values()|list
d|dictsort
{'b': 1, 'A': 2, 'c': 0}|dictsort
{'b': 1, 'A': 2, 'c': 0}|dictsort(true)
{'b': 1, 'A': 2, 'c': 0}|dictsort(by='value')
{'b': 1, 'A': 2, 'c': 0}|dictsort(reverse=true)
d.get('x') ~ d.get('q') ~ d.get('q', 'dflt')
'abc'|list
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3, 4, 5]|batch(2, 0)|list
[1, 2, 3, 4, 5]|slice(2)|list
[1, 2, 3]|slice(2, 'x')|list
missing|default('d')
none|default('d')
none|default('d', true)
''|d('d', boolean=true)
0|default(5)
missing|default
missing|length
missing|list
missing|join(',')
missing|upper
missing|first is defined
missing + 1
missing == missing
missing == none
missing is none
not missing
'5'|int ~ ' 12 '|int ~ 'x'|int ~ 'x'|int(9) ~ '3.9'|int ~ 3.9|int ~ -3.9|int
'ff'|int(base=16) ~ '0x1f'|int(0, 16) ~ none|int ~ true|int
'2.5'|float ~ 'x'|float ~ 3|float ~ 'inf'|float
-3|abs
3.7|round ~ 2.5|round ~ 3.14159|round(2) ~ 3.2|round(method='ceil') ~ 3.25|round(1, 'floor') ~ 5|round
1234.5|round(-2)
3.14|string ~ none|string ~ true|string
html|escape
html|e|safe
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, blank=true)
lines|indent('> ', first=true)
''|indent
s|wordcount
s|center(20) ~ '|'
d|tojson
[1, 2.0, none, true, 'é"\\\n\x01/', {}, []]|tojson
'<&>'|tojson
u|tojson
u|tojson(ensure_ascii=true)
'😀'|tojson(ensure_ascii=true)
d|tojson(indent=2)
[[], {}, [1, {'a': []}]]|tojson(indent=4)
d|tojson(indent=none)
d|tojson(separators=(',', ':'))
{'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true)
{1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson
(1, 2)|tojson
1e20|tojson
missing|tojson
list|map('string')|tojson
a is defined ~ missing is defined ~ missing is undefined ~ n is none ~ n is not none
s is string ~ a is number ~ f is float ~ a is integer ~ t is boolean ~ t is integer ~ t is number
d is mapping ~ list is mapping ~ list is sequence ~ s is sequence ~ d is sequence ~ a is sequence
list is iterable ~ s is iterable ~ a is iterable ~ missing is iterable ~ n is iterable
a is odd ~ a is even ~ a is divisibleby 7 ~ a is divisibleby(2)
t is true ~ t is false ~ 1 is true ~ n is false
'abc' is lower ~ 'ABC' is upper ~ 'Abc' is lower ~ '1' is lower
a is eq 7 ~ a is ne 7 ~ a is gt 3 ~ a is lt 3 ~ a is ge 7 ~ a is le 6 ~ a is equalto 7
a is in [7, 8] ~ 'x' is in 'xyz'
a is sameas a ~ none is sameas none
range is callable ~ a is callable
'upper' is filter ~ 'nope' is filter ~ 'defined' is test
not a is odd
a is not odd
a is defined and b is defined or c
range(5)|list ~ range(2, 5)|list ~ range(5, 0, -2)|list
range(3)|length
range(0)|list
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict([('a', 1)])
strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %b %d %j %y %I %p %%')
strftime_now('%-d %-m %e %F %T')
raise_exception('refused: ' ~ a)
1 / 0
1 % 0
'a' + 1
1 + 'a'
'a' < 1
[] + {}
none + 1
s.nope
s.nope()
a()
list|nope
a is nope
s|upper(1)
s|replace('a')
s.split('')
{[1]: 2}
-'a'
list['a'] is defined
s.upper is defined
'a' * -1
[1, 2, 3].index(2) ~ [1, 1].count(1)
'x' ~ ('a', 'b') ~ {1: 2}
[true, false, none]|join('|')
list[0:2][1]
{'a': {'b': [10, 20]}}['a']['b'][-1]
(a, b)[0] + 1
(1 + 2) * 3
- 3 + + 4
--3
1 - -1
'%d%%' % 5
[1, 2,]
{'a': 1,}
{'a': 1, 'a': 2}
'abc'[none:2]
'abc'[missing:2]
'a' in ['a'] and 'b' not in ['a']
not 'a' in ['b']
1 in [1] == true
people[0].name ~ people[0]['tag'].id
people|map(attribute='tag.id')|list
nested|map('first')|list
nested|map(attribute=0)|list
big ~ big * 1000
9007199254740993 + 1
s|trim|length
(s ~ '!')|upper|lower|length
s.upper().lower().title()
'é' == 'é'
'\u00e9' in u
['b', 'a']|sort|first
[3, 1.5, 2]|sort
[[2, 'b'], [1, 'a']]|sort
[1, 'a']|sort
'abc'|map('upper')|join
d|map('upper')|join
d|attr('items') is defined
""".strip("\n").split("\n")

TEMPLATES = [
    "{% for x in list %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in list %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }} {% endfor %}",
    "{% for x in list %}[{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}]{% endfor %}",
    "{% for x in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.depth }}{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}{% for x in missing %}x{% else %}undef{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}no{% endfor %}",
    "{% for x in list if x > 9 %}{{ x }}{% else %}no{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for c in 'añb' %}<{{ c }}>{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in list %}{% for y in list %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in list %}{% break %}{% else %}E{% endfor %}|{% for x in list %}{% continue %}{% else %}E{% endfor %}|{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{% else %}E{% endfor %}",
    "{% for x in list %}{% set y = x %}{% endfor %}{{ y is defined }}",
    "{% set y = 0 %}{% for x in list %}{% set y = y + x %}{{ y }} {% endfor %}{{ y }}",
    "{% set ns = namespace(total=0, l=[]) %}{% for x in list %}{% set ns.total = ns.total + x %}{% set ns.l = ns.l + [x] %}{% endfor %}{{ ns.total }}{{ ns.l }}{{ ns.nope is defined }}",
    "{% set ns = namespace(found=false) %}{% for x in list if not ns.found %}{{ x }}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for x in list if not ns.found %}{{ x }}{{ loop.last }}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}",
    "{% set d.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = (b, a) %}{{ a }}{{ b }}",
    "{% set x %}  block {{ a }}{% endset %}[{{ x }}]{% set y | upper | trim %}  block {{ a }}{% endset %}[{{ y }}]",
    "{% set x = 1, 2 %}{{ x }}",
    "{% if a > 10 %}1{% elif a > 5 %}2{% else %}3{% endif %}{% if none %}x{% endif %}",
    "{% if a == 7 %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% macro m(x, y=2, z=x) %}{{ x }}-{{ y }}-{{ z }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(z=0, x=5) }}",
    "{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m() }}{{ m(1, 2) }}",
    "{% macro m(x) %}[{{ x }}{{ x is defined }}]{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}",
    "{% macro m() %}{{ v }}{% endmacro %}{% set v = 1 %}{{ m() }}{% set v = 2 %}{{ m() }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}{% set a = 99 %}{{ a }}{% endmacro %}{{ m() }}{{ a }}",
    "{% macro m() %}{% if q is not defined %}{% set q = 'dflt' %}{% endif %}{{ q }}{% endmacro %}{{ m() }}{{ q is defined }}",
    "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}in {{ a }}{% endcall %}",
    "{% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i) each(list) %}{{ i }}={{ v }};{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}aXa{% endfilter %}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x is defined }}",
    "{% raw %}{{ not }} {% if %}{# c #}{% endraw %}",
    "{% generation %}gen {{ a }}{% endgeneration %}",
    "a{# comment #}b{#- c -#} d",
    "  {% if true %}\n  x\n  {% endif %}\n  y\n",
    "  {%- if true -%}\n  x\n  {%- endif -%}\n  y\n",
    "  {%+ if true +%}\n  x\n  {% endif +%}\n  y\n",
    "a\n  {{ 1 }}\n  {{- 2 -}}\n  b\n\n",
    "a\n\t{# c #}\n  b {# d #}\nc",
    "x {% raw %}\n  y {%+ endraw %}\n z {%- raw -%}  q  {%- endraw -%}  r",
    "a\r\nb\rc\r\n{% if true %}\r\nd{% endif %}\r\n",
    "text without tags\n",
    "\n\n",
    "{{ 'a' }}\n{{ 'b' }}\n",
    "{% for x in list -%}\n  {{ x }}\n{%- endfor %}\n",
    "{% for x in list %}\n{{ x }}\n{% endfor %}\n",
    "{% for x in list recursive %}{{ x }}{% endfor %}",
    "{% for x in nested recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}@{{ loop.depth }} {% endif %}{% endfor %}",
    "{% set j = joiner('; ') %}{% for x in list %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{% set g = list|map('string') %}{{ g|join }}{{ g|join }}{{ 'true' if g else 'false' }}",
    "{% set g = list|select('gt', 9) %}{{ 'always' if g else 'never' }}",
    "{{ {'a': {'b': 1}}}}",
    "{{ '}}' }}{{ \"{%\" }}",
    "{{ 1 }}{{ 2 }",
    "{% if %}",
    "{% for %}",
    "{% endif %}",
    "{% if a %}",
    "{{ a b }}",
    "{{ }}",
    "{{ a. }}",
    "{{ 'x }}",
    "{{ (1 }}",
    "{{ 1) }}",
    "{% set = 1 %}",
    "{% set none = 1 %}",
    "{% nope %}",
    "{# open",
    "{% raw %}open",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% break %}",
    "{{ a is defined is defined }}",
    "{% if a %}{{ a|nope }}{% endif %}",
    "{% if false %}{{ a|nope }}{% endif %}ok",
    "{% if false %}{{ a is nope }}{% endif %}ok",
    "{{ a|nope }}",
    "{{ m(1) }}{% macro m(x) %}{{ x }}{% endmacro %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{{ [1, 2, 3][::0] }}",
    "{{ 'abc'|default }}{{ loop is defined }}",
    "{%- set x = 1 -%}\n\n {{- x -}} \n",
    "{% set x = [] %}{% for i in range(3) %}{% set x = x + [i] %}{% endfor %}{{ x }}",
    "{% for m in people %}{{ m.name }}{% if m.age is defined and m.age > 30 %}!{% endif %}{{ '\\n' }}{% endfor %}",
    "{{ '<|' ~ s ~ '|>' + '\\n' }}{{ s + ' ' + u }}",
    "{% if 'a' in s and not (b > 0 or n) %}t{% else %}f{% endif %}",
    "{% set a %}{% endset %}[{{ a }}]{{ a|length }}",
    "{% for x in list %}{% if loop.first %}{% set y = 'set' %}{% endif %}{{ y }}{% endfor %}",
    "{% for x in list %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% set x = 'outer' %}{% for i in [1] %}{{ x }}{% set x = 'inner' %}{{ x }}{% endfor %}{{ x }}",
    "{{ range(100001)|length }}",
    "{{ namespace(a=1).a }}{{ namespace({'b': 2}).b }}",
    "{{ dict(a=1).a }}{{ dict(**{'x': 1}).x }}{{ '{}-{}'.format(*[1, 2]) }}",
]
