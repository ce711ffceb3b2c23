import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.formats.common.TimestampFormat;
import org.apache.flink.formats.json.canal.CanalJsonDeserializationSchema;
import org.apache.flink.formats.json.debezium.DebeziumJsonDeserializationSchema;
import org.apache.flink.formats.json.maxwell.MaxwellJsonDeserializationSchema;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.utils.LogicalTypeParser;
import org.apache.flink.util.Collector;

/**
 * Messages as Flink's own formats read them, without a cluster. Arguments: debezium, maxwell or canal, and for
 * each column its name and its type, as in Flink's SQL. The input has a message a line, in Base64. The output has
 * a row a line: the kind of the change, and the values in Base64 (`-`: null), with tabs between them. Messages that the format refuses
 * are lines with `refused` and the reason.
 */
public final class FlinkFormats {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        List<DataTypes.Field> fields = new ArrayList<>();
        List<RowData.FieldGetter> getters = new ArrayList<>();
        for (int index = 1; index < args.length; index += 2) {
            LogicalType type = LogicalTypeParser.parse(args[index + 1], FlinkFormats.class.getClassLoader());
            fields.add(DataTypes.FIELD(args[index], DataTypes.of(type)));
            getters.add(RowData.createFieldGetter(type, (index - 1) / 2));
        }
        DataType row = DataTypes.ROW(fields.toArray(new DataTypes.Field[0]));
        DeserializationSchema<RowData> schema = schema(args[0], row);
        schema.open(null);
        Collector<RowData> printed = new Collector<>() {
            @Override
            public void collect(RowData found) {
                StringBuilder line = new StringBuilder(found.getRowKind().shortString());
                for (RowData.FieldGetter getter : getters) {
                    Object value = getter.getFieldOrNull(found);
                    line.append('\t').append(value == null ? "-" : encoded(value.toString()));
                }
                out.println(line);
            }

            @Override
            public void close() {}
        };
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                schema.deserialize(Base64.getDecoder().decode(line), printed);
            } catch (Exception error) {
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                out.println("refused\t" + cause.getMessage().replace('\n', ' '));
            }
        }
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    private static DeserializationSchema<RowData> schema(String format, DataType row) {
        TypeInformation<RowData> type = TypeInformation.of(RowData.class);
        switch (format) {
            case "debezium":
                return new DebeziumJsonDeserializationSchema(row, List.of(), type, false, false, TimestampFormat.SQL);
            case "maxwell":
                return new MaxwellJsonDeserializationSchema(row, List.of(), type, false, TimestampFormat.SQL);
            default:
                return CanalJsonDeserializationSchema.builder(row, List.of(), type)
                        .setIgnoreParseErrors(false)
                        .setTimestampFormat(TimestampFormat.SQL)
                        .build();
        }
    }
}
