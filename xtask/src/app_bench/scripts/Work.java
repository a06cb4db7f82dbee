// Uses direct buffers, archives, texts, maps and many generated classes, in several threads.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import java.util.zip.Inflater;

final class Work implements Callable<String> {
    private static final Pattern VOWELS = Pattern.compile("([^aeiou ]+)([aeiou]+)");

    private final SplittableRandom random;
    private final int count;

    private Work(int number, int count) {
        random = new SplittableRandom(number);
        this.count = count;
    }

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[0]);
        int count = Integer.parseInt(arguments[1]);
        List<Work> tasks = new ArrayList<>();
        for (int number = 0; number < 16; number++) {
            tasks.add(new Work(number, count));
        }
        var pool = Executors.newFixedThreadPool(threads);
        for (Future<String> result : pool.invokeAll(tasks)) {
            System.out.println(result.get());
        }
        pool.shutdown();
    }

    @Override
    public String call() throws Exception {
        var words = new ArrayList<String>();
        for (int number = 0; number < count; number++) {
            words.add(word());
        }
        return String.join(" ", buffers(), archives(words), texts(words), classes());
    }

    private String word() {
        return random.ints(2 + random.nextInt(12), 'a', 'p')
            .mapToObj(letter -> String.valueOf((char) letter))
            .collect(Collectors.joining());
    }

    /** Memory outside of the collector's heap, which is freed when the collector finds it unused. */
    private String buffers() {
        var kept = new ByteBuffer[16];
        long sum = 0;
        for (int number = 0; number < count / 4; number++) {
            var buffer = ByteBuffer.allocateDirect(16 + random.nextInt(1 << 8 + number % 10));
            while (buffer.remaining() >= Long.BYTES) {
                buffer.putLong(number);
            }
            sum += buffer.flip().remaining() + (number < 8 ? 0 : buffer.getLong(8));
            kept[number % kept.length] = buffer;
        }
        return Long.toString(sum);
    }

    private String archives(List<String> words) throws Exception {
        var sum = new CRC32();
        for (int part = 0; part + 200 <= words.size(); part += 200) {
            byte[] text = String.join("\n", words.subList(part, part + 200)).getBytes();
            var packed = new ByteArrayOutputStream();
            try (var out = new GZIPOutputStream(packed)) {
                out.write(text);
            }
            try (var in = new GZIPInputStream(new ByteArrayInputStream(packed.toByteArray()))) {
                sum.update(in.readAllBytes());
            }
            var deflater = new Deflater(1 + part % 9, true);
            var inflater = new Inflater(true);
            var middle = new byte[text.length + 64];
            deflater.setInput(text);
            deflater.finish();
            inflater.setInput(middle, 0, deflater.deflate(middle));
            var again = new byte[text.length];
            sum.update(again, 0, inflater.inflate(again));
            deflater.end();
            inflater.end();
        }
        return Long.toHexString(sum.getValue());
    }

    private String texts(List<String> words) {
        Map<Integer, List<String>> lengths = words.stream()
            .map(word -> VOWELS.matcher(word).replaceAll("$2$1"))
            .collect(Collectors.groupingBy(String::length, TreeMap::new, Collectors.toList()));
        return lengths.entrySet().stream()
            .map(entry -> entry.getKey() + ":" + entry.getValue().stream().sorted().toList())
            .mapToInt(String::hashCode)
            .mapToObj(Integer::toHexString)
            .collect(Collectors.joining("-"));
    }

    private String classes() throws Exception {
        long sum = 0;
        for (int number = 0; number < Units.COUNT; number++) {
            var unit = Class.forName("Unit" + number).getDeclaredConstructor().newInstance();
            var value = unit.getClass().getDeclaredMethod("value", long.class);
            for (int turn = 0; turn < 50; turn++) {
                sum = sum * 31 + (long) value.invoke(unit, sum >> 7);
            }
        }
        return Long.toHexString(sum);
    }
}
