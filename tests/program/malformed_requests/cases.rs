//! Malformed requests: request line, headers, body bytes, text, nesting, chunks, and address. Fully determined by the given
//! generator.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A complete request that must be refused with a response.
    Refused,
    /// Bytes that need not be a request: refused, or the connection closed.
    RefusedOrClosed,
    /// A mutation that may still be valid.
    RefusedOrServed,
}

pub struct Case {
    pub kind: &'static str,
    pub bytes: Vec<u8>,
    pub expect: Expect,
}

const VALID: &str = r#"{"model":"talker","messages":[{"role":"user","content":"What is a priority?"}],"max_tokens":5,"temperature":0.5,"stop":["a","b"],"stream":false}"#;
const TARGETS: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/llm/v1/chat/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/llm/admin/load",
];

type Kind = fn(&mut Pcg64) -> Case;
const KINDS: &[Kind] = &[
    line, header, length, json, mutated, nested, keys, utf8, types, chunks, address, garbage, cut,
];

pub fn any(chance: &mut Pcg64) -> Case {
    let kind = KINDS.choose(chance).expect("there are kinds");
    kind(chance)
}

fn noise(chance: &mut Pcg64, most: usize) -> Vec<u8> {
    let length = chance.random_range(1..=most);
    (0..length).map(|_| chance.random()).collect()
}

fn target(chance: &mut Pcg64) -> &'static str {
    TARGETS.choose(chance).expect("there are targets")
}

fn with_body(kind: &'static str, target: &str, body: &[u8], expect: Expect) -> Case {
    let mut bytes = format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    Case {
        kind,
        bytes,
        expect,
    }
}

fn plain(kind: &'static str, bytes: impl Into<Vec<u8>>) -> Case {
    Case {
        kind,
        bytes: bytes.into(),
        expect: Expect::RefusedOrClosed,
    }
}

/// The request line.
fn line(chance: &mut Pcg64) -> Case {
    let lines = [
        "GET /v1/models HTTP/1.2",
        "GET /v1/models HTTP/9.9",
        "GET /v1/models HTTP/1.1 ",
        "GET  /v1/models",
        "GET",
        " GET / HTTP/1.1",
        "G\u{0}T / HTTP/1.1",
        "GET /\u{1f600} HTTP/1.1",
        "get /v1/nowhere HTTP/1.1",
        "GET\t/v1/nowhere\tHTTP/1.1",
        "POST /v1/chat/completions HTTP/1.1\rHost: x",
        "CONNECT a:1 HTTP/1.1",
        "PRI * HTTP/2.0",
        "OPTIONS * HTTP/1.1",
        "GET * HTTP/1.1",
        "GET ?x HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET http://[::1 HTTP/1.1",
    ];
    let mut bytes = lines.choose(chance).expect("lines").as_bytes().to_vec();
    if chance.random_bool(0.3) {
        let at = chance.random_range(0..bytes.len());
        bytes[at] = chance.random();
    }
    bytes.extend_from_slice(b"\r\nHost: localhost\r\n\r\n");
    // A lucky byte may turn it into `GET /v1/models`.
    Case {
        kind: "line",
        bytes,
        expect: Expect::RefusedOrServed,
    }
}

/// One bad header among good ones.
fn header(chance: &mut Pcg64) -> Case {
    let long = format!("x: {}", "y".repeat(chance.random_range(66_000..90_000)));
    let many = "a: b\r\n".repeat(chance.random_range(101..300));
    let bad: [&[u8]; 13] = [
        b"no colon at all",
        b": no name",
        b"bad name: x",
        b"x\x00y: z",
        b"x: \x00",
        b"x: \x7f",
        b"x: a\rb: c",
        b"Host: evil.example",
        b"Host: a b",
        b"Content-Encoding: gzip",
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: !!!\r\nHost: twice",
        long.as_bytes(),
        many.as_bytes(),
    ];
    let mut bytes = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".to_vec();
    bytes.extend_from_slice(bad.choose(chance).expect("headers"));
    bytes.extend_from_slice(b"\r\nContent-Length: 0\r\n\r\n");
    plain("header", bytes)
}

/// Headers that state the body's length.
fn length(chance: &mut Pcg64) -> Case {
    let said = [
        "Content-Length: -1",
        "Content-Length: 99999999999999999999",
        "Content-Length: 1e3",
        "Content-Length: 0x10",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 1000000000",
        "Content-Length:",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding: xchunked",
    ];
    let said = said.choose(chance).expect("lengths");
    let target = target(chance);
    plain(
        "length",
        format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{said}\r\n\r\n{{}}"
        ),
    )
}

/// Bodies that are not JSON.
fn json(chance: &mut Pcg64) -> Case {
    let mut body = match chance.random_range(0..4) {
        0 => VALID.as_bytes()[..chance.random_range(0..VALID.len())].to_vec(),
        1 => noise(chance, 300),
        2 => format!("{VALID}{VALID}").into_bytes(),
        _ => b"\xef\xbb\xbf{".to_vec(),
    };
    // Makes noise invalid that is JSON by chance.
    body.push(b'\\');
    with_body("json", target(chance), &body, Expect::Refused)
}

/// A valid body with a few changed bytes.
fn mutated(chance: &mut Pcg64) -> Case {
    let mut body = VALID.as_bytes().to_vec();
    for _ in 0..chance.random_range(1..6) {
        let at = chance.random_range(0..body.len());
        match chance.random_range(0..3) {
            0 => body[at] = chance.random(),
            1 => drop(body.remove(at)),
            _ => body.insert(at, *b"{}[]\",:0".choose(chance).expect("signs")),
        }
    }
    let target = TARGETS[chance.random_range(0..2)];
    with_body("mutated", target, &body, Expect::RefusedOrServed)
}

fn nested(chance: &mut Pcg64) -> Case {
    let depth = chance.random_range(65..20_000);
    let (open, close) = *[("[", "]"), ("{\"a\":", "}")]
        .choose(chance)
        .expect("pairs");
    let closed = if chance.random() { depth } else { 0 };
    let inner = format!("{}1{}", open.repeat(depth), close.repeat(closed));
    let body = format!(r#"{{"model":"talker","messages":{inner}}}"#);
    with_body("nested", target(chance), body.as_bytes(), Expect::Refused)
}

fn keys(chance: &mut Pcg64) -> Case {
    let count = chance.random_range(20_001..30_000);
    let keys: String = (0..count)
        .map(|number| format!("\"{number}\":1,"))
        .collect();
    let body = format!(r#"{{"model":"talker",{keys}"messages":[]}}"#);
    with_body("keys", TARGETS[0], body.as_bytes(), Expect::Refused)
}

/// Text that is not UTF-8, or not Unicode.
fn utf8(chance: &mut Pcg64) -> Case {
    let bad: [&[u8]; 7] = [
        b"\xff",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf5\x80\x80\x80",
        b"\xe2\x82",
        b"\\ud800",
        b"\x00",
    ];
    let mut body = br#"{"messages":[{"role":"user","content":"x"}],"model":"talker"#.to_vec();
    body.extend_from_slice(bad.choose(chance).expect("bytes"));
    body.extend_from_slice(br#""}"#);
    with_body("utf8", target(chance), &body, Expect::Refused)
}

/// JSON of the wrong kind.
fn types(chance: &mut Pcg64) -> Case {
    let values = [
        "null",
        "true",
        "-1",
        "1e400",
        "\"\"",
        "[]",
        "{}",
        "[[]]",
        "\"../../../etc/passwd\"",
        "\"a\\u0000b\"",
        "99999999999999999999999999",
        "\"/dev/zero\"",
    ];
    let value = values.choose(chance).expect("values");
    let body = match chance.random_range(0..4) {
        0 => (*value).to_owned(),
        1 => format!(r#"{{"model":{value},"messages":[]}}"#),
        2 => format!(r#"{{"model":"talker","stream":"yes","messages":{value}}}"#),
        _ => format!(r#"{{"model":"no-such-model","prompt":{value},"input":{value}}}"#),
    };
    with_body("types", target(chance), body.as_bytes(), Expect::Refused)
}

fn chunks(chance: &mut Pcg64) -> Case {
    let mut bytes = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        target(chance)
    )
    .into_bytes();
    let endless = format!(
        "1;{}\r\nx\r\n",
        "e".repeat(chance.random_range(17_000..40_000))
    );
    let trailers = format!(
        "0\r\n{}\r\n",
        "t: u\r\n".repeat(chance.random_range(200..2_000))
    );
    let bad: [&[u8]; 10] = [
        b"zz\r\n",
        b"-1\r\n",
        b"ffffffffffffffffff\r\n",
        b"5\r\nab\r\n0\r\n\r\n",
        b"2\r\nabcdef\r\n",
        b"2\nab\n0\n\n",
        b"\r\n\r\n",
        b"0 0\r\n\r\n",
        endless.as_bytes(),
        trailers.as_bytes(),
    ];
    for _ in 0..chance.random_range(0..200) {
        bytes.extend_from_slice(b"1\r\n{\r\n");
    }
    bytes.extend_from_slice(bad.choose(chance).expect("chunks"));
    plain("chunks", bytes)
}

fn address(chance: &mut Pcg64) -> Case {
    let letters: String = (0..chance.random_range(1..40))
        .map(|_| char::from(chance.random_range(b'!'..b'~')))
        .filter(|letter| !"?#".contains(*letter))
        .collect();
    let target = match chance.random_range(0..7) {
        0 => format!("/x{letters}"),
        1 => format!("/v1/x{letters}"),
        2 => format!("/llm/admin/x{letters}"),
        3 => format!("/v1/models/%{letters}"),
        4 => "/v1/models/..%2f..%2fetc%2fpasswd".to_owned(),
        5 => format!("/v1/models?api_key={letters}"),
        _ => format!("/{}", "a/".repeat(chance.random_range(600..3_000))),
    };
    let bytes = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    plain("address", bytes)
}

/// Random bytes, and the beginnings of other protocols.
fn garbage(chance: &mut Pcg64) -> Case {
    let mut bytes: Vec<u8> = match chance.random_range(0..4) {
        0 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        2 => b"\x05\x01\x00".to_vec(),
        _ => Vec::new(),
    };
    bytes.extend(noise(chance, 2_000));
    plain("garbage", bytes)
}

/// A valid request that is cut off.
fn cut(chance: &mut Pcg64) -> Case {
    let mut case = with_body("cut", TARGETS[0], VALID.as_bytes(), Expect::RefusedOrClosed);
    let end = chance.random_range(1..case.bytes.len());
    case.bytes.truncate(end);
    case
}
