import java.lang.management.ManagementFactory;

/** What happened between the first and the last event: changes by kind, wall and CPU time of this process. */
final class Window {
    long inserts;
    long updates;
    long deletes;
    private long firstNanos;
    private long firstCpuNanos;

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    void begin() {
        if (firstNanos == 0) {
            firstNanos = System.nanoTime();
            firstCpuNanos = cpuNanos();
        }
    }

    String end() {
        long lastNanos = System.nanoTime();
        double wall = (lastNanos - firstNanos) / 1e9;
        double cpu = (cpuNanos() - firstCpuNanos) / 1e9;
        return String.format(
                java.util.Locale.ROOT,
                "{\"changes\": %d, \"wall_s\": %.4f, \"cpu_s\": %.4f, \"began\": %.4f, \"ended\": %.4f,"
                        + " \"counts\": {\"inserts\": %d, \"updates\": %d, \"deletes\": %d}}",
                inserts + updates + deletes, wall, cpu, firstNanos / 1e9, lastNanos / 1e9, inserts, updates, deletes);
    }
}
