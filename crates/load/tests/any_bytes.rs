//! Whatever a script or a server says: the client ends in time, with results or an error, and never panics.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use leadline_load::names::Names;
use leadline_load::script::Script;
use leadline_load::{run, Mode, Phase, Plan, Source};
use leadline_net::address::Place;
use leadline_net::postgres::{Login, SslMode};
use leadline_testdata::{noise, Random};

const WORDS: [&str; 44] = [
    "\\set ",
    "\\if ",
    "\\elif ",
    "\\else",
    "\\endif",
    "\\gset",
    "\\aset x",
    "\\sleep ",
    "\\startpipeline",
    "\\endpipeline",
    "\n",
    ";",
    ":x",
    "x ",
    "1",
    "9223372036854775808",
    ".5",
    "1e9",
    "(",
    ")",
    ",",
    "+",
    "-",
    "*",
    "/",
    "%",
    "not ",
    "and ",
    "is ",
    "null ",
    "case when ",
    " then ",
    " end ",
    "random(",
    "'",
    "\"",
    "$$",
    "$a$",
    "/*",
    "*/",
    "--",
    "\\",
    "é",
    "create function f() begin ",
];

#[test]
fn any_script_is_read_or_refused() {
    let mut random = Random(0x10ad);
    let mut read = 0;
    for _ in 0..20_000 {
        let count = random.index(12);
        let text: String = (0..count).map(|_| WORDS[random.index(WORDS.len())]).collect();
        read += usize::from(Script::parse("any", 1, &text, &mut Names::default()).is_ok());
    }
    assert!(read > 1000, "{read}");
    for _ in 0..2000 {
        let length = random.index(200);
        let text = String::from_utf8_lossy(&noise(&mut random, length)).into_owned();
        let _ = Script::parse("any", 1, &text, &mut Names::default());
    }
}

#[test]
fn any_answer_ends_in_results() {
    const READY: &[u8] = b"Z\0\0\0\x05I";
    let welcome = [b"R\0\0\0\x08\0\0\0\0".as_slice(), READY].concat();
    let answers: [&[u8]; 6] = [
        b"1\0\0\0\x042\0\0\0\x04T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0D\0\0\0\x0b\0\x01\0\0\0\x011C\0\0\0\x0dSELECT 1\0",
        b"E\0\0\0\x16C40001\0Mserialize\0\0",
        b"D\0\0\0\x0b\0\x01\0\0\0\x011",
        b"G\0\0\0\x07\0\0\0",
        b"T\0\0\0\x06\0\x05",
        READY,
    ];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new("127.0.0.1", listener.local_addr().unwrap().port());
    let rounds = 200;
    let server = thread::spawn(move || {
        let mut random = Random(0xa5);
        for _ in 0..rounds {
            let (mut stream, _) = listener.accept().unwrap();
            let mut said = welcome.clone();
            for _ in 0..random.index(8) {
                said.extend_from_slice(answers[random.index(answers.len())]);
                if random.below(3) == 0 {
                    let length = random.index(30);
                    said.extend(noise(&mut random, length));
                }
            }
            // What a client that has ended left unread is no matter.
            let _ = stream.write_all(&said);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    for round in 0..rounds {
        let mode = [Mode::Simple, Mode::Extended, Mode::Prepared][round % 3];
        let login = Login {
            place: place.clone(),
            user: "app".into(),
            database: "shop".into(),
            password: None,
            ssl: SslMode::Disable,
            root: None,
            timeout: Duration::from_secs(5),
            receive_buffer: None,
        };
        let text = ["select 1 as a \\gset\nselect :a;", "begin;\nselect 1;\nend;"][round % 2];
        let plan = Plan {
            scripts: vec![Source { name: "s".into(), weight: 1, text: text.into() }],
            mode,
            clients: 1,
            threads: 1,
            phases: vec![Phase { rate: None, for_ns: 50_000_000, warm_up: false }],
            terminals: None,
            auto_warm_up: None,
            transactions: None,
            poisson: false,
            scale: 1,
            variables: Vec::new(),
            seed: 1,
            max_tries: 3,
            continue_on_error: round % 2 == 0,
            latency_limit: None,
            drain: Duration::from_millis(10),
            histograms: true,
        };
        let _ = run(&login, &plan, &AtomicBool::new(false), &mut |_| {});
    }
    server.join().unwrap();
}
