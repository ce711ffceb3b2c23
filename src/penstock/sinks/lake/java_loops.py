"""Calls a method of Java for each of many values, in one call of the JVM.

A call from Python takes 0.1 ms of CPU time, most of it in Python. A small commit to a large table concerns a
hundred data files, so it would make several hundred calls. Here Java itself goes through the values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Handle = Any
"""A `MethodHandle` of Java."""


class JavaLoops:
    def __init__(self, jvm: Any) -> None:
        java = jvm.java
        self._handles = java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        self._as_interface = java.lang.invoke.MethodHandleProxies.asInterfaceInstance
        self._class = java.lang.Class.forName
        self._arrays = java.lang.reflect.Array
        self._object = self._class("java.lang.Object")
        self._function = self._class("java.util.function.Function")
        self._consumer = self._class("java.util.function.Consumer")
        self._stream = java.util.stream.StreamSupport.stream
        self._spliterator = java.util.Spliterators.spliteratorUnknownSize
        self._joining = java.util.stream.Collectors.joining
        self._loader = java.lang.Thread.currentThread().getContextClassLoader()
        self._text = self.function(self.method("java.lang.String", "valueOf", "java.lang.Object"))
        self._nothing = java.util.stream.Stream.empty
        self._newline = java.util.regex.Pattern.compile("\n")

    def method(self, kind: str, name: str, *parameters: str) -> Handle:
        """A method of a class, with parameters of these classes. Only the method need be public."""
        kinds = self._arrays.newInstance(self._class("java.lang.Class"), len(parameters))
        for place, parameter in enumerate(parameters):
            self._arrays.set(kinds, place, self._named(parameter))
        found = self._named(kind).getMethod(name, kinds)
        found.setAccessible(True)
        return self._lookup.unreflect(found)

    def _named(self, kind: str) -> Any:
        return self._class(kind, True, self._loader)

    def with_second(self, method: Handle, value: Any) -> Handle:
        """A method with its second parameter given."""
        values = self._arrays.newInstance(self._object, 1)
        self._arrays.set(values, 0, value)
        return self._handles.insertArguments(method, 1, values)

    def function(self, method: Handle) -> Any:
        """A method with one parameter, as a `Function`."""
        return self._as_interface(self._function, method)

    def consumer(self, method: Handle) -> Any:
        """A method with one parameter, as a `Consumer`."""
        return self._as_interface(self._consumer, method)

    def of(self, values: Any) -> Any:
        """A Java stream of the values of an `Iterable`."""
        # Py4J finds no default methods of interfaces, such as `spliterator`.
        return self._stream(self._spliterator(values.iterator(), 0), False)

    def lines(self, texts: Sequence[str]) -> Any:
        """A Java stream of texts, none of which is empty or has a line break."""
        return self._newline.splitAsStream("\n".join(texts)) if texts else self._nothing()

    def json_list(self, stream: Any) -> list[Any]:
        """The values of a Java stream of texts in JSON, or of numbers."""
        texts = stream.map(self._text).collect(self._joining(",", "[", "]"))
        found: list[Any] = json.loads(texts)
        return found
