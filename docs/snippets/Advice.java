// Reads what is advised from the file in which the penstock daemon keeps it, and prints two numbers for uploads of
// 1 GiB: how many threads, and how many bytes a part has. It needs Jackson (jackson-databind).
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.Optional;

public class Advice {
    /** The setting that stands for about this size, or nothing: then the SDK's own numbers serve. */
    static Optional<JsonNode> advise(String operation, double sizeBytes) {
        String path = System.getenv().getOrDefault("PENSTOCK_SNAPSHOT", "/run/penstock/recommendations.json");
        JsonNode found = null;
        double nearest = Math.log(2); // within a factor of two
        try {
            for (JsonNode advice : new ObjectMapper().readTree(new File(path)).path("recommendations")) {
                double distance = Math.abs(Math.log(advice.path("payload_size_bytes").asDouble() / sizeBytes));
                if (advice.path("operation").asText().equals(operation) && distance <= nearest
                        && Instant.parse(advice.path("expires_at").asText()).isAfter(Instant.now())) {
                    found = advice.path("setting");
                    nearest = distance;
                }
            }
        } catch (IOException | DateTimeParseException damaged) {
            return Optional.empty();
        }
        return Optional.ofNullable(found);
    }

    public static void main(String[] arguments) {
        System.out.println(advise("s3_upload", 1L << 30)
                .map(setting -> setting.path("thread_count").asInt() + " " + setting.path("part_size_bytes").asLong())
                .orElse("no advice"));
    }
}
