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
    let seen = seen(&["sh", "-c", "cat /no/such/file 2>/dev/null"]);
    let failure =
        seen["failures"].as_array().and_then(|list| list.iter().find(|f| f["said"] == true)).expect("a failure");
    assert_eq!(
        (failure["path"].as_str(), failure["errno"].as_i64()),
        (Some("/no/such/file"), Some(libc::ENOENT.into()))
    );
}

#[test]
fn a_thousand_children() {
    let seen = seen(&["sh", "-c", "i=0; while [ $i -lt 1000 ]; do (exit 3) & i=$((i+1)); done; wait"]);
    let processes = seen["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 1001);
    assert_eq!(processes.iter().filter(|p| p["exit_code"] == 3 && p["parent"] == 0).count(), 1000);
}
