package penstock.iceberg;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
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
 * Janino compiles this, so there are casts where Java would infer types.
 */
public final class MetadataCache extends ResolvingFileIO {
    /** Larger files are read from the store each time. */
    private static final int FILE_BYTES_MAX = 8 << 20;
    private static final long BYTES_MAX = Math.min(64L << 20, Runtime.getRuntime().maxMemory() / 16);
    private static final String RANDOM = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    private static final Pattern METADATA = Pattern.compile(
        ".*/(\\d+-" + RANDOM + "(\\.gz)?\\.metadata\\.json|snap-\\d+-\\d+-" + RANDOM + "\\.avro|" + RANDOM
        + "-m\\d+\\.avro)");

    /** By location; the one that was not used for longest comes first. */
    private static final LinkedHashMap KNOWN = new LinkedHashMap(16, 0.75f, true);
    private static long knownBytes = 0;

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
        return METADATA.matcher(location).matches() ? new Written(location, file) : file;
    }

    @Override
    public void deleteFile(String location) {
        forget(location);
        super.deleteFile(location);
    }

    @Override
    public void deleteFiles(Iterable locations) {
        for (Iterator each = locations.iterator(); each.hasNext(); ) {
            forget((String) each.next());
        }
        super.deleteFiles(locations);
    }

    private static InputFile remembered(String location, InputFile file) {
        return METADATA.matcher(location).matches() ? new Read(location, file) : file;
    }

    private static synchronized byte[] known(String location) {
        return (byte[]) KNOWN.get(location);
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

        Written(String location, OutputFile file) {
            this.location = location;
            this.file = file;
        }

        @Override
        public PositionOutputStream create() {
            return new Kept(location, file.create());
        }

        @Override
        public PositionOutputStream createOrOverwrite() {
            return new Kept(location, file.createOrOverwrite());
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

        Kept(String location, PositionOutputStream out) {
            this.location = location;
            this.out = out;
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
            ByteArrayOutputStream complete = content;
            content = null;
            out.close();
            if (complete != null) {
                remember(location, complete.toByteArray());
            }
        }

        @Override
        public long getPos() throws IOException {
            return out.getPos();
        }

        @Override
        public long storedLength() throws IOException {
            return out.storedLength();
        }
    }
}
