package penstock.iceberg;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.ResolvingFileIO;
import org.apache.iceberg.io.SeekableInputStream;

/**
 * Iceberg's access to any store, which remembers the metadata files that this process wrote or read: each commit
 * reads those of the commits before it, and a request to a store takes longer than all the rest.
 *
 * Such a file never changes, because its name has a random number. So what is remembered is what the store has.
 * Which files a table has now is said by the catalog, and that is never remembered.
 *
 * The manifests of a commit are sent side by side. Iceberg writes the list of them, whose name has the same random
 * number, before it says anything to the catalog; closing that list waits for all of them, and fails if one failed.
 *
 * Janino compiles this, so there are casts where Java would infer types.
 */
public final class MetadataCache extends ResolvingFileIO {
    /** Larger files are read from the store each time. */
    private static final int FILE_BYTES_MAX = 8 << 20;
    private static final long BYTES_MAX = Math.min(64L << 20, Runtime.getRuntime().maxMemory() / 16);
    private static final String RANDOM = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    private static final Pattern METADATA = Pattern.compile(
        ".*/(\\d+-" + RANDOM + "(\\.gz)?\\.metadata\\.json|snap-\\d+-\\d+-(" + RANDOM + ")\\.avro|(" + RANDOM
        + ")-m\\d+\\.avro)");
    private static final int LIST = 3;
    private static final int MANIFEST = 4;
    private static final int SENT_AT_ONCE = 8;

    /** By location; the one that was not used for longest comes first. */
    private static final LinkedHashMap KNOWN = new LinkedHashMap(16, 0.75f, true);
    private static long knownBytes = 0;
    /** Manifests that are being sent, or could not be sent, by location. */
    private static final Map SENDING = new HashMap();
    private static final ExecutorService SENDERS = Executors.newFixedThreadPool(SENT_AT_ONCE, new Daemons());

    /** False in the tasks of Spark, which get a copy: what writes manifests there may write no list of them. */
    private transient boolean writesLists = false;

    @Override
    public void initialize(Map properties) {
        super.initialize(properties);
        writesLists = true;
    }

    @Override
    public InputFile newInputFile(String location) {
        return remembered(location, super.newInputFile(location));
    }

    @Override
    public InputFile newInputFile(String location, long length) {
        return remembered(location, super.newInputFile(location, length));
    }

    @Override
    public OutputFile newOutputFile(String location) {
        OutputFile file = super.newOutputFile(location);
        Matcher found = METADATA.matcher(location);
        if (!found.matches()) {
            return file;
        }
        String commit = found.group(LIST);
        boolean isManifest = writesLists && found.group(MANIFEST) != null;
        return new Written(location, file, isManifest ? found.group(MANIFEST) : commit, isManifest);
    }

    @Override
    public void deleteFile(String location) {
        settle(location);
        super.deleteFile(location);
    }

    @Override
    public void deleteFiles(Iterable locations) {
        for (Iterator each = locations.iterator(); each.hasNext(); ) {
            settle((String) each.next());
        }
        super.deleteFiles(locations);
    }

    private static InputFile remembered(String location, InputFile file) {
        return METADATA.matcher(location).matches() ? new Read(location, file) : file;
    }

    private static synchronized byte[] known(String location) {
        Sent sending = (Sent) SENDING.get(location);
        return sending != null ? sending.content : (byte[]) KNOWN.get(location);
    }

    /** Sends a manifest in the background. */
    private static synchronized void send(String location, String commit, byte[] content, PositionOutputStream out) {
        Sent sent = new Sent(location, commit, content, out);
        SENDING.put(location, sent);
        sent.result = SENDERS.submit(sent);
    }

    private static synchronized void sent(Sent one) {
        if (SENDING.get(one.location) == one) {
            SENDING.remove(one.location);
            remember(one.location, one.content);
        }
    }

    private static synchronized List sendingOf(String commit) {
        List found = new ArrayList();
        for (Iterator each = SENDING.values().iterator(); each.hasNext(); ) {
            Sent one = (Sent) each.next();
            if (one.commit.equals(commit)) {
                found.add(one);
            }
        }
        return found;
    }

    /** Returns when the store has all manifests of a commit. */
    private static void await(String commit) throws IOException {
        IOException failed = null;
        for (Iterator each = sendingOf(commit).iterator(); each.hasNext(); ) {
            try {
                await((Sent) each.next());
            } catch (IOException error) {
                failed = error;
            }
        }
        if (failed != null) {
            throw failed;
        }
    }

    private static void await(Sent one) throws IOException {
        try {
            one.result.get();
        } catch (ExecutionException error) {
            throw new IOException("cannot write " + one.location, error.getCause());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while manifests were written");
        }
    }

    private static synchronized Sent sending(String location) {
        return (Sent) SENDING.get(location);
    }

    /** Returns when nothing is on its way to the store that is to be deleted. */
    private static void settle(String location) {
        Sent one = sending(location);
        if (one != null) {
            try {
                await(one);
            } catch (IOException error) {
                // it is not there, or soon deleted
            }
        }
        forget(location);
    }

    private static synchronized void remember(String location, byte[] content) {
        forget(location);
        KNOWN.put(location, content);
        knownBytes += content.length;
        Iterator oldest = KNOWN.entrySet().iterator();
        while (knownBytes > BYTES_MAX && oldest.hasNext()) {
            knownBytes -= ((byte[]) ((Map.Entry) oldest.next()).getValue()).length;
            oldest.remove();
        }
    }

    private static synchronized void forget(String location) {
        SENDING.remove(location);
        byte[] content = (byte[]) KNOWN.remove(location);
        if (content != null) {
            knownBytes -= content.length;
        }
    }

    /** `location`: as Iceberg names the file. */
    private static final class Read implements InputFile {
        private final String location;
        private final InputFile file;

        Read(String location, InputFile file) {
            this.location = location;
            this.file = file;
        }

        @Override
        public String location() {
            return file.location();
        }

        @Override
        public boolean exists() {
            return known(location) != null || file.exists();
        }

        @Override
        public long getLength() {
            return whole().getLength();
        }

        @Override
        public SeekableInputStream newStream() {
            return whole().newStream();
        }

        /** The file in memory, or the file itself if it is too large. */
        private InputFile whole() {
            byte[] content = known(location);
            if (content == null) {
                content = content();
                if (content == null) {
                    return file;
                }
                remember(location, content);
            }
            return new InMemoryInputFile(file.location(), content);
        }

        /** Null: it is too large. */
        private byte[] content() {
            try {
                SeekableInputStream in = file.newStream();
                try {
                    byte[] found = in.readNBytes(FILE_BYTES_MAX + 1);
                    return found.length > FILE_BYTES_MAX ? null : found;
                } finally {
                    in.close();
                }
            } catch (IOException error) {
                throw new RuntimeIOException(error);
            }
        }
    }

    private static final class Written implements OutputFile {
        private final String location;
        private final OutputFile file;
        private final String commit;
        private final boolean isManifest;

        /** `commit`: the random number of the commit, if the file is a list of manifests or one of them. */
        Written(String location, OutputFile file, String commit, boolean isManifest) {
            this.location = location;
            this.file = file;
            this.commit = commit;
            this.isManifest = isManifest;
        }

        @Override
        public PositionOutputStream create() {
            return new Kept(location, file.create(), commit, isManifest);
        }

        @Override
        public PositionOutputStream createOrOverwrite() {
            return new Kept(location, file.createOrOverwrite(), commit, isManifest);
        }

        @Override
        public String location() {
            return file.location();
        }

        @Override
        public InputFile toInputFile() {
            return new Read(location, file.toInputFile());
        }
    }

    /** Remembers what was written, once the store has it. */
    private static final class Kept extends PositionOutputStream {
        private final String location;
        private final PositionOutputStream out;
        /** Null: the file is too large, or is complete. */
        private ByteArrayOutputStream content = new ByteArrayOutputStream();
        private final String commit;
        private final boolean isManifest;
        private boolean closed = false;
        /** Of a manifest that is being sent. */
        private long length = -1;

        Kept(String location, PositionOutputStream out, String commit, boolean isManifest) {
            this.location = location;
            this.out = out;
            this.commit = commit;
            this.isManifest = isManifest;
        }

        @Override
        public void write(int one) throws IOException {
            out.write(one);
            keep(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int start, int count) throws IOException {
            out.write(bytes, start, count);
            keep(bytes, start, count);
        }

        private void keep(byte[] bytes, int start, int count) {
            if (content != null && content.size() + count <= FILE_BYTES_MAX) {
                content.write(bytes, start, count);
            } else {
                content = null;
            }
        }

        @Override
        public void flush() throws IOException {
            out.flush();
        }

        @Override
        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            byte[] complete = content == null ? null : content.toByteArray();
            content = null;
            if (isManifest && complete != null) {
                length = out.getPos();
                send(location, commit, complete, out);
                return;
            }
            out.close();
            if (commit != null && !isManifest) {
                await(commit);
            }
            if (complete != null) {
                remember(location, complete);
            }
        }

        @Override
        public long getPos() throws IOException {
            return length < 0 ? out.getPos() : length;
        }

        @Override
        public long storedLength() throws IOException {
            return length < 0 ? out.storedLength() : length;
        }
    }
    /** A manifest on its way to the store. */
    private static final class Sent implements Callable {
        private final String location;
        private final String commit;
        /** Null: it could not be sent. */
        private volatile byte[] content;
        private final PositionOutputStream out;
        private volatile Future result;

        Sent(String location, String commit, byte[] content, PositionOutputStream out) {
            this.location = location;
            this.commit = commit;
            this.content = content;
            this.out = out;
        }

        @Override
        public Object call() throws IOException {
            boolean complete = false;
            try {
                out.close();
                complete = true;
            } finally {
                if (complete) {
                    sent(this);
                } else {
                    content = null;
                }
            }
            return null;
        }
    }

    private static final class Daemons implements ThreadFactory {
        @Override
        public Thread newThread(Runnable work) {
            Thread thread = new Thread(work, "manifests");
            thread.setDaemon(true);
            return thread;
        }
    }
}
