package penstock.hbase;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;

/**
 * Many rows of an HBase table in one call. Rows come and go as a frame of bytes, which `frames.py` describes.
 *
 * Janino compiles this, so there are casts where Java would infer types.
 */
public final class RowFrames {
    /** What is done with a row, as in `frames.py`. */
    private static final int SKIP = 0;
    private static final int ADD = 1;
    private static final int REPLACE = 2;
    private static final int DELETE = 3;
    private static final int CHANGE = 4;
    private static final int RENEW = 5;
    private static final int CLEAR = 6;

    /** Of a column in a row. */
    private static final byte NULL = 0;
    private static final byte VALUE = 1;

    private static final long NOTHING = -1L;

    private RowFrames() {
    }

    /** Writes the rows of a frame. Returns when the server has all of them. */
    public static void write(Table table, byte[] family, byte[] frame) throws IOException, InterruptedException {
        Frame rows = new Frame(frame);
        List actions = new ArrayList(2 * rows.count);
        for (int row = 0; row < rows.count; row++) {
            add(actions, rows, row, family);
        }
        if (!actions.isEmpty()) {
            table.batch(actions, new Object[actions.size()]);
        }
    }

    private static void add(List actions, Frame rows, int row, byte[] family) {
        int act = rows.acts[row];
        if (act == SKIP) {
            return;
        }
        byte[] key = rows.keys.value(row);
        long time = rows.times[row];
        if (act == DELETE) {
            actions.add(new Delete(key).addFamily(family, time));
            return;
        }
        Put put = new Put(key);
        Delete unset = new Delete(key);
        boolean lacks = act == CLEAR || act == RENEW;
        for (int place = 0; place < rows.columns.length && act != CLEAR; place++) {
            Column column = rows.columns[place];
            byte state = column.states[row];
            if (state == VALUE) {
                put.addColumn(family, column.qualifier, time, column.value(row));
            } else if (state == NULL && act == CHANGE) {
                unset.addColumns(family, column.qualifier, time);
            }
            lacks |= state == NULL;
        }
        if (!put.isEmpty()) {
            actions.add(put);
        }
        if (act != ADD && act != CHANGE && lacks) {
            unset.addFamily(family, time - 1);
        }
        if (!unset.isEmpty()) {
            actions.add(unset);
        }
    }

    /** The times of the newest cells with this qualifier in the rows of a frame, or -1. */
    public static byte[] newest(Table table, byte[] family, byte[] qualifier, byte[] frame) throws IOException {
        Frame rows = new Frame(frame);
        List gets = new ArrayList(rows.count);
        for (int row = 0; row < rows.count; row++) {
            gets.add(new Get(rows.keys.value(row)).addColumn(family, qualifier));
        }
        Result[] found = table.get(gets);
        ByteBuffer times = ByteBuffer.allocate(8 * rows.count).order(ByteOrder.LITTLE_ENDIAN);
        for (int row = 0; row < rows.count; row++) {
            times.putLong(timeOf(found[row], family, qualifier));
        }
        return times.array();
    }

    private static long timeOf(Result row, byte[] family, byte[] qualifier) {
        Cell cell = row.getColumnLatestCell(family, qualifier);
        return cell == null ? NOTHING : cell.getTimestamp();
    }

    /**
     * Begins to read all rows. `head`: a frame without rows, whose columns are those that are wanted. `own`: the
     * qualifier whose time is the row's.
     */
    public static Scanned scan(Table table, byte[] family, byte[] own, byte[] head, boolean wholeRows, int caching)
        throws IOException {
        Scan scan = new Scan().addFamily(family).setCaching(caching).setCacheBlocks(false);
        if (!wholeRows) {
            scan.setFilter(new KeyOnlyFilter());
        }
        return new Scanned(table.getScanner(scan), family, own, new Frame(head).columns);
    }

    /** Rows that are read, portion by portion. */
    public static final class Scanned {
        private final ResultScanner rows;
        private final byte[] family;
        private final byte[] own;
        private final Column[] columns;

        Scanned(ResultScanner rows, byte[] family, byte[] own, Column[] columns) {
            this.rows = rows;
            this.family = family;
            this.own = own;
            this.columns = columns;
        }

        /** A frame of so many rows, or fewer that have more bytes. Null: there are no more. */
        public byte[] next(int rowsMax, long bytesMax) throws IOException {
            List found = new ArrayList();
            long bytes = 0;
            while (found.size() < rowsMax && bytes < bytesMax) {
                Result row = rows.next();
                if (row == null) {
                    break;
                }
                found.add(row);
                bytes += Result.getTotalSizeOfCells(row);
            }
            return found.isEmpty() ? null : framed(found);
        }

        public void close() {
            rows.close();
        }

        private byte[] framed(List found) throws IOException {
            int count = found.size();
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteBuffer head = buffer(8 + 9 * count);
            head.putInt(count).putInt(columns.length);
            for (int row = 0; row < count; row++) {
                head.putLong(timeOf((Result) found.get(row), family, own));
            }
            head.put(new byte[count]);
            out.write(head.array());
            byte[][] values = new byte[count][];
            for (int row = 0; row < count; row++) {
                values[row] = ((Result) found.get(row)).getRow();
            }
            writeValues(out, values);
            for (int place = 0; place < columns.length; place++) {
                byte[] qualifier = columns[place].qualifier;
                byte[] states = new byte[count];
                for (int row = 0; row < count; row++) {
                    Cell cell = ((Result) found.get(row)).getColumnLatestCell(family, qualifier);
                    states[row] = cell == null ? NULL : VALUE;
                    values[row] = cell == null ? null : CellUtil.cloneValue(cell);
                }
                out.write(buffer(4).putInt(qualifier.length).array());
                out.write(qualifier);
                out.write(states);
                writeValues(out, values);
            }
            return out.toByteArray();
        }

        private static void writeValues(ByteArrayOutputStream out, byte[][] values) throws IOException {
            ByteBuffer ends = buffer(4 * (values.length + 1));
            int end = 0;
            ends.putInt(end);
            for (int row = 0; row < values.length; row++) {
                end = Math.addExact(end, values[row] == null ? 0 : values[row].length);
                ends.putInt(end);
            }
            out.write(ends.array());
            for (int row = 0; row < values.length; row++) {
                if (values[row] != null) {
                    out.write(values[row]);
                }
            }
        }

        private static ByteBuffer buffer(int bytes) {
            return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
        }
    }

    /** A frame that was received. */
    private static final class Frame {
        final int count;
        final long[] times;
        final byte[] acts;
        final Column keys;
        final Column[] columns;

        Frame(byte[] frame) {
            ByteBuffer in = ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN);
            count = in.getInt();
            columns = new Column[in.getInt()];
            times = new long[count];
            for (int row = 0; row < count; row++) {
                times[row] = in.getLong();
            }
            acts = new byte[count];
            in.get(acts);
            keys = new Column(in, count, null, null);
            for (int place = 0; place < columns.length; place++) {
                byte[] qualifier = new byte[in.getInt()];
                in.get(qualifier);
                byte[] states = new byte[count];
                in.get(states);
                columns[place] = new Column(in, count, qualifier, states);
            }
        }
    }

    private static final class Column {
        final byte[] qualifier;
        final byte[] states;
        private final int[] ends;
        private final byte[] data;
        private final int start;

        Column(ByteBuffer in, int count, byte[] qualifier, byte[] states) {
            this.qualifier = qualifier;
            this.states = states;
            ends = new int[count + 1];
            for (int row = 0; row <= count; row++) {
                ends[row] = in.getInt();
            }
            data = in.array();
            start = in.position();
            in.position(start + ends[count]);
        }

        byte[] value(int row) {
            byte[] found = new byte[ends[row + 1] - ends[row]];
            System.arraycopy(data, start + ends[row], found, 0, found.length);
            return found;
        }
    }
}
