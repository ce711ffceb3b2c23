package jdk.nashorn.api.scripting;

/** Maxwell's classes name this one of Java 8's script engine, gone from newer Javas; without a script it is unused. */
public final class ScriptObjectMirror {
    private ScriptObjectMirror() {}

    public Object call(Object self, Object... arguments) {
        throw new UnsupportedOperationException();
    }
}
