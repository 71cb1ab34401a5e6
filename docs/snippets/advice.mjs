// Reads what is advised from the file in which the penstock daemon keeps it, and prints two numbers for uploads of
// 1 GiB: how many threads, and how many bytes a part has. It needs Node alone.
import { readFileSync } from "node:fs";

/** The setting that stands for about this size, or undefined: then the SDK's own numbers serve. */
export function advise(operation, sizeBytes) {
  const path = process.env.PENSTOCK_SNAPSHOT ?? "/run/penstock/recommendations.json";
  const distance = (advice) => Math.abs(Math.log2(advice.payload_size_bytes / sizeBytes));
  try {
    return JSON.parse(readFileSync(path, "utf8"))
      .recommendations.filter((advice) => advice.operation === operation)
      .filter((advice) => distance(advice) <= 1) // within a factor of two
      .filter((advice) => Date.parse(advice.expires_at) > Date.now())
      .sort((one, other) => distance(one) - distance(other))[0]?.setting;
  } catch {
    return undefined; // no daemon, or a damaged file
  }
}

const setting = advise("s3_upload", 2 ** 30);
console.log(setting ? `${setting.thread_count} ${setting.part_size_bytes}` : "no advice");
