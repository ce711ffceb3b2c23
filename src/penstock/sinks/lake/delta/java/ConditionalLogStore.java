package penstock.delta;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.IOUtils;

/**
 * Delta's log on S3 for any number of writers: a commit is a conditional put (If-None-Match), so exactly one of
 * two writers creates a version. Needs Hadoop 3.4.2 or newer.
 *
 * The answer to a put that succeeded may be lost, and the next attempt is then refused. So the content decides
 * whose commit it is: Delta writes a random id into each (commitInfo.txnId).
 *
 * Janino compiles this, so there are casts where Java would infer types.
 */
public final class ConditionalLogStore extends S3SingleDriverLogStore {
    private static final int ATTEMPTS_MAX = 10;
    private static final long WAIT_MS = 100;

    public ConditionalLogStore(Configuration conf) {
        super(conf);
    }

    /**
     * Delta's fast listing has every object below the folder, not only those in it. That is right for the log
     * alone. VACUUM lists a table's folders with this method, too: it would find the files of the log among the
     * data, and remove them.
     */
    @Override
    public Iterator listFrom(Path path, Configuration conf) throws IOException {
        if ("_delta_log".equals(path.getParent().getName())) {
            return super.listFrom(path, conf);
        }
        FileStatus[] all = path.getFileSystem(conf).listStatus(path.getParent());
        Arrays.sort(all); // by path
        List found = new ArrayList();
        for (int place = 0; place < all.length; place++) {
            if (all[place].getPath().getName().compareTo(path.getName()) >= 0) {
                found.add(all[place]);
            }
        }
        return found.iterator();
    }

    @Override
    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite.booleanValue()) { // not a commit
            super.write(path, actions, overwrite, conf);
            return;
        }
        FileSystem store = path.getFileSystem(conf);
        byte[] content = lines(actions);
        for (int attempt = 1; ; attempt++) {
            try {
                create(store, path, content);
                return;
            } catch (IOException error) {
                byte[] found = read(store, path);
                if (found != null) {
                    if (Arrays.equals(found, content)) {
                        return;
                    }
                    throw new FileAlreadyExistsException(path.toString());
                }
                // 409: two conditional puts met, and S3 asks for another attempt.
                if (attempt == ATTEMPTS_MAX || String.valueOf(error).indexOf("Status Code: 409") < 0) {
                    throw error;
                }
                pause(attempt);
            }
        }
    }

    private static void create(FileSystem store, Path path, byte[] content) throws IOException {
        FSDataOutputStreamBuilder builder = store.createFile(path);
        builder.overwrite(true); // the condition decides, with the put itself
        builder.must("fs.option.create.conditional.overwrite", true);
        builder.opt("fs.s3a.create.performance", true);
        FSDataOutputStream out = (FSDataOutputStream) builder.build();
        boolean complete = false;
        try {
            out.write(content);
            complete = true;
        } finally {
            if (!complete) {
                out.abort(); // closing it would write a part of the commit
            }
        }
        out.close();
    }

    /** Null: there is no such object. */
    private static byte[] read(FileSystem store, Path path) throws IOException {
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        try {
            FSDataInputStream in = store.open(path);
            try {
                IOUtils.copyBytes(in, found, 1 << 16, false);
            } finally {
                in.close();
            }
        } catch (FileNotFoundException error) {
            return null;
        }
        return found.toByteArray();
    }

    private static byte[] lines(Iterator actions) throws IOException {
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            found.write(((String) actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return found.toByteArray();
    }

    private static void pause(int attempt) throws IOException {
        try {
            Thread.sleep(WAIT_MS * attempt);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new java.io.InterruptedIOException("interrupted while a commit was repeated");
        }
    }
}
