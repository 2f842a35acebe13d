//! Tests of `reading`.

use super::*;
use crate::names::ALIKE_LEAST;

#[test]
fn the_likeness_filter_rejects_only_names_below_the_threshold() {
    let names = [
        "temperature",
        "temprature",
        "top_p",
        "top_k",
        "max_tokens",
        "tokens_max",
        "stop",
        "pots",
        "a",
        "",
        "org/model-7b",
        "org/model-70b",
        "größe",
        "grosse",
    ];
    for one in names {
        for other in names {
            let plain = strsim::normalized_damerau_levenshtein(one, other);
            let wanted = (plain >= ALIKE_LEAST).then_some(plain);
            assert_eq!(likeness(one, other), wanted, "{one} {other}");
        }
    }
}

#[test]
fn an_error_has_the_path_of_the_invalid_value() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only the errors are looked at")]
    struct Section {
        #[serde(default)]
        mode: String,
        #[serde(default)]
        counts: Vec<u8>,
    }
    type Sections = std::collections::BTreeMap<String, Section>;
    for (text, message) in [
        // Without a target type, `off` is a boolean and not text.
        (
            "one: {mode: off}\ntwo: {nmode: x}",
            "two.nmode: unknown key `nmode`; did you mean `mode`?",
        ),
        (
            "one: {mode: off}\ntwo: {counts: [1, x]}",
            "two.counts[1]: a non-negative whole number is expected here",
        ),
        (
            "one: {mode: off}\ntwo: 3",
            "two: keys with values (`key: value`) are expected here",
        ),
    ] {
        let wrong = salvage::<Sections>(text, Format::Yaml).wrong;
        let flaw = &wrong[0].error;
        assert_eq!(
            (flaw.line, flaw.message.as_str()),
            (Some(2), message),
            "{text}"
        );
    }
    assert!(
        salvage::<Sections>("one: {mode: off}", Format::Yaml)
            .wrong
            .is_empty()
    );
}

/// Files that comment out their old values have many comments.
#[test]
fn comments_are_parsed_in_linear_time_at_any_position() {
    let comments = "    # an old value: it stays here, commented out\n".repeat(200_000);
    for text in [
        format!("one:\n{comments}  two: 1\n"),
        format!("one:\n{comments}  - 1\n"),
        format!("one:\n  - 1\n{comments}  - 2\n"),
        format!("one: [\n{comments}  1]\n"),
        format!("one: {{two: 1,\n{comments}  three: 1}}\n"),
        format!("{comments}one: 1\n{comments}"),
        format!("one: # here\n{comments}\ntwo: 1\n"),
    ] {
        let [plain, last_wins]: [Result<Value, ParseError>; 2] =
            [yaml(&text), yaml_last_wins(&text)];
        assert!(plain.is_ok(), "{plain:?}");
        assert_eq!(plain, last_wins);
    }
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Lab {
    name: String,
    gpus: u8,
    is_open: bool,
    racks: Vec<Rack>,
    doors: std::collections::BTreeMap<String, Option<u8>>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rack {
    name: String,
    height: u8,
}

fn salvaged(text: &str, format: Format) -> (Option<Lab>, Vec<String>) {
    let salvaged = salvage::<Lab>(text, format);
    let wrong = salvaged.wrong.iter().map(|wrong| wrong.error.to_string());
    (salvaged.value, wrong.collect())
}

#[test]
fn every_wrong_value_is_reported_and_the_others_are_read() {
    let text = "
gpus: many
is_open: yes
gpsu: 3
racks:
  - {name: a, height: 1000}
  - {name: b, height: 2}
  - {name: c, heigth: 3}
doors: {front: wide, back: 2}
name: lab
";
    let (lab, wrong) = salvaged(text, Format::Yaml);
    let lab = lab.expect("what is right");
    assert_eq!((lab.name.as_str(), lab.gpus, lab.is_open), ("lab", 0, true));
    assert_eq!(
        lab.racks,
        [Rack {
            name: "b".to_owned(),
            height: 2
        }]
    );
    assert_eq!(lab.doors.get("back"), Some(&Some(2)));
    let expected = [
        (2, "gpus: "),
        (4, "gpsu: unknown key `gpsu`"),
        (6, "racks[0].height: "),
        (
            8,
            "racks[2].heigth: unknown key `heigth`; did you mean `height`?",
        ),
        (9, "doors.front: "),
    ];
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
    for (error, (line, part)) in wrong.iter().zip(expected) {
        assert!(error.starts_with(&format!("line {line},")), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn every_wrong_value_of_json_is_reported() {
    let text =
        r#"{"gpus": -1, "is_open": "yes", "racks": [{"name": 3, "height": 1}], "name": "lab"}"#;
    let (lab, wrong) = salvaged(text, Format::Json);
    assert_eq!(lab.expect("what is right").name, "lab");
    assert_eq!(wrong.len(), 3, "{wrong:#?}");
    for (error, path) in wrong.iter().zip(["gpus: ", "is_open: ", "racks[0].name: "]) {
        assert!(error.contains(path), "{error}");
    }
}

/// The check runs after the value has been parsed, outside the parser.
#[test]
fn a_value_refused_by_a_validator_is_reported_with_its_path() {
    fn even<'de, D: Deserializer<'de>>(value: D) -> Result<u8, D::Error> {
        match u8::deserialize(value)? {
            odd if odd % 2 == 1 => Err(serde::de::Error::custom(format!("{odd} is odd"))),
            even => Ok(even),
        }
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Pair {
        #[serde(deserialize_with = "even")]
        one: u8,
        #[serde(deserialize_with = "even")]
        two: u8,
    }

    for format in [Format::Yaml, Format::Json] {
        let text = r#"{"a": {"one": 1, "two": 3}, "b": {"one": 2, "two": 5}}"#;
        let salvaged = salvage::<std::collections::BTreeMap<String, Pair>>(text, format);
        let paths: Vec<&str> = salvaged
            .wrong
            .iter()
            .map(|wrong| wrong.path.as_str())
            .collect();
        assert_eq!(paths, ["a.one", "a.two", "b.two"]);
        let read = salvaged.value.expect("the others");
        assert_eq!((read["b"].one, read["a"].two), (2, 0));
    }
}

#[test]
fn a_syntax_error_is_reported_once_after_earlier_wrong_values() {
    let text = "gpus: many\nracks:\n  - {name: a, height: 1\nname: lab\n";
    let (lab, wrong) = salvaged(text, Format::Yaml);
    assert_eq!((lab, wrong.len()), (None, 2), "{wrong:#?}");
    let (_, twice) = salvaged("gpus: many\nname: a\nname: b\n", Format::Yaml);
    assert_eq!(twice.len(), 2, "{twice:#?}");
    let (lab, wrong) = salvaged("gpus: 1\ngpus: 2\n", Format::YamlLastWins);
    assert_eq!((lab.expect("a lab").gpus, wrong), (2, Vec::new()));
}

#[test]
fn at_most_twenty_wrong_values_are_reported() {
    let text: String = (0..1000).map(|nth| format!("unknown_{nth}: 1\n")).collect();
    let (lab, wrong) = salvaged(&text, Format::Yaml);
    assert_eq!((lab, wrong.len()), (None, 20));
}

#[test]
fn an_overlong_name_is_not_compared_with_known_names() {
    let known = ["temperature", "top_p"];
    assert_eq!(
        nearest("temprature", known.into_iter()),
        Some("temperature")
    );
    assert_eq!(
        nearest(&"temperature".repeat(100_000), known.into_iter()),
        None
    );
}
