package penstock.delta;

import io.delta.storage.HDFSLogStore;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.CopyOption;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log in a directory, for any number of writers: a commit is written under a hidden name and gets its own
 * name by a hard link, so exactly one of two writers creates a version, and nobody sees a part of it.
 *
 * Delta's default store looks whether the name is taken, and renames. Between the two, another process may commit
 * the same version, and one of the commits is lost. Hadoop also starts processes for it (readlink, chmod): five for
 * each commit.
 *
 * Janino compiles this, so there are casts where Java would infer types.
 */
public final class DirectoryLogStore extends HDFSLogStore {
    public DirectoryLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite.booleanValue()) { // not a commit
            super.write(path, actions, overwrite, conf);
            return;
        }
        java.nio.file.Path version = Paths.get(path.toUri().getPath(), new String[0]);
        java.nio.file.Path hidden = version.resolveSibling("." + version.getFileName() + "." + UUID.randomUUID() + ".tmp");
        byte[] content = lines(actions);
        try {
            Files.copy(new ByteArrayInputStream(content), hidden, new CopyOption[0]);
            link(version, hidden);
        } catch (Unlinkable error) {
            super.write(path, Arrays.asList(new Object[] {text(content)}).iterator(), overwrite, conf);
        } finally {
            Files.deleteIfExists(hidden);
        }
    }

    private static void link(java.nio.file.Path version, java.nio.file.Path hidden) throws IOException, Unlinkable {
        try {
            Files.createLink(version, hidden);
        } catch (FileAlreadyExistsException error) {
            // NFS repeats a request whose answer was lost, and is then told that its own link is there.
            if (!Files.isSameFile(version, hidden)) {
                throw error;
            }
        } catch (FileSystemException error) {
            throw new Unlinkable();
        } catch (UnsupportedOperationException error) {
            throw new Unlinkable();
        }
    }

    private static byte[] lines(Iterator actions) throws IOException {
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            found.write(((String) actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return found.toByteArray();
    }

    /** Lines without the last end of line, which the default store adds. */
    private static String text(byte[] lines) {
        return new String(lines, 0, Math.max(0, lines.length - 1), StandardCharsets.UTF_8);
    }

    /** The file system has no hard links, or refuses them: Delta's default store is the best that is left. */
    private static final class Unlinkable extends Exception {
    }
}
