//! Commands that are followed: what is seen of them.

use serde_json::Value;
use std::ffi::OsString;
use std::time::Duration;

fn seen(words: &[&str]) -> Value {
    let words = words.iter().map(OsString::from).collect();
    let text = leadline_follow::run(words, Duration::from_secs(5)).expect("followed");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_command_that_works() {
    let seen = seen(&["true"]);
    let main = &seen["processes"][0];
    assert_eq!((main["exit_code"].as_i64(), main["execs"].as_i64()), (Some(0), Some(1)), "{seen}");
    assert!(main["program"].as_str().is_some_and(|program| program.ends_with("/true")), "{seen}");
    assert_eq!(seen["left_running"], 0);
}

#[test]
fn what_a_message_speaks_of() {
    let seen_of = |redirected: &str| seen(&["sh", "-c", &format!("cat /no/such/file {redirected}")]);
    let seen = seen_of("2>&1 | cat >/dev/null");
    let failure = seen["failures"].as_array().and_then(|list| list.iter().find(|f| f["said"] == 4)).expect("a failure");
    assert_eq!(
        (failure["path"].as_str(), failure["errno"].as_i64()),
        (Some("/no/such/file"), Some(libc::ENOENT.into()))
    );
    let line = "cat: /no/such/file: No such file or directory";
    assert_eq!(failure["line"].as_str(), Some(line));
    let cat = &seen["processes"][failure["process"].as_u64().expect("a place") as usize];
    assert_eq!(cat["said"].as_str(), Some(format!("{line}\n").as_str()));
    let untold = seen_of("2>/dev/null");
    assert!(untold["failures"].as_array().is_some_and(|list| list.iter().all(|f| f["said"] == 0)), "nobody was told");
}

#[test]
fn failures_end_at_exec_and_at_a_later_success() {
    let of_file = |seen: &Value, path: &str| {
        let failures = seen["failures"].as_array().expect("failures");
        failures.iter().find(|f| f["path"] == path).cloned().unwrap_or_default()
    };
    let seen = seen(&["sh", "-c", "mkdir /no/such/folder; read x < /no/such/file; exec /bin/false"]);
    assert_eq!(of_file(&seen, "/no/such/file")["before_exec"], true, "{seen}");
    let folder = std::env::temp_dir().join(format!("leadline-follow-{}", std::process::id()));
    let script = format!(
        "import os\ntry: os.mkdir('{0}/in')\nexcept OSError: os.mkdir('{0}'); os.mkdir('{0}/in')",
        folder.display()
    );
    let seen = self::seen(&["python3", "-c", &script]);
    assert_eq!(of_file(&seen, &format!("{}/in", folder.display()))["resolved"], true, "{seen}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_thousand_children() {
    let seen = seen(&["sh", "-c", "i=0; while [ $i -lt 1000 ]; do (exit 3) & i=$((i+1)); done; wait"]);
    let processes = seen["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 1001);
    assert_eq!(processes.iter().filter(|p| p["exit_code"] == 3 && p["parent"] == 0).count(), 1000);
}
