//! Reads what is advised from the file in which the penstock daemon keeps it, and prints two numbers for uploads of
//! 1 GiB: how many threads, and how many bytes a part has. It needs serde_json and chrono.
use chrono::{DateTime, Utc};
use serde_json::Value;

/// The setting that stands for about this size, or None: then the SDK's own numbers serve.
fn advise(operation: &str, size_bytes: f64) -> Option<Value> {
    let path = std::env::var("PENSTOCK_SNAPSHOT")
        .unwrap_or_else(|_| "/run/penstock/recommendations.json".into());
    let snapshot: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let mut found = None;
    let mut nearest = 1.0; // within a factor of two
    for advice in snapshot.get("recommendations")?.as_array()? {
        let distance = (advice["payload_size_bytes"].as_f64()? / size_bytes).log2().abs();
        let expires_at: DateTime<Utc> = advice["expires_at"].as_str()?.parse().ok()?;
        if advice["operation"] == operation && distance <= nearest && expires_at > Utc::now() {
            (found, nearest) = (Some(advice["setting"].clone()), distance);
        }
    }
    found
}

fn main() {
    match advise("s3_upload", f64::from(1 << 30)) {
        Some(setting) => println!("{} {}", setting["thread_count"], setting["part_size_bytes"]),
        None => println!("no advice"),
    }
}
