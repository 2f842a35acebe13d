//! Handles keys of an older form that belong to none of its sections, and that no release had. They are removed with a warning, or
//! refused where the configuration is strict. Options of removed engines are handled the same way.

use serde_json::{Map, Value};

use crate::documents::fields::fields_of;
use crate::documents::{
    AutoscalingConfig, DeploymentConfig, Diagnostics, EngineConfig, LoraConfig, ModelDocument,
    MultiplexConfig, ScalingConfig, prompt,
};
use crate::engines;
use crate::engines::OptionFate;
use crate::recipes::{CANDLE, candle_config, weights_config};
use crate::requests::generation;

const KWARGS: &str = "engine_config.engine_kwargs";

pub(super) fn take_out(value: &mut Value, notes: &mut Diagnostics) {
    let generation = "engine_config.generation";
    let s3 = "engine_config.s3_mirror_config";
    let gcs = "engine_config.gcs_mirror_config";
    let mirrors = weights_config::keys();
    for (path, known) in [
        ("", fields_of::<ModelDocument>()),
        ("engine_config", fields_of::<EngineConfig>()),
        ("scaling_config", fields_of::<ScalingConfig>()),
        ("lora_config", fields_of::<LoraConfig>()),
        ("multiplex_config", fields_of::<MultiplexConfig>()),
        ("deployment_config", fields_of::<DeploymentConfig>()),
        (
            "deployment_config.autoscaling_config",
            fields_of::<AutoscalingConfig>(),
        ),
        (generation, generation::KEYS),
        (&format!("{generation}.prompt_format"), prompt::keys()),
        (s3, mirrors.s3),
        (&format!("{s3}.s3_aws_credentials"), mirrors.credentials),
        (gcs, mirrors.gcs),
    ] {
        let Some(section) = object(value, path) else {
            continue;
        };
        let unknown: Vec<String> = section
            .keys()
            .filter(|key| !known.contains(&key.as_str()))
            .cloned()
            .collect();
        for key in unknown {
            section.shift_remove(&key);
            notes.unknown_key(&below(path, &key), known.iter().copied());
        }
    }
    for section in [s3, gcs] {
        let files = object(value, section).and_then(|section| section.get_mut("extra_files"));
        let files = files.and_then(Value::as_array_mut).into_iter().flatten();
        for (nth, file) in files.enumerate() {
            let Some(file) = file.as_object_mut() else {
                continue;
            };
            let known = mirrors.extra_file;
            let keys = file.keys().filter(|key| !known.contains(&key.as_str()));
            for key in keys.cloned().collect::<Vec<_>>() {
                file.shift_remove(&key);
                let path = format!("{section}.extra_files[{nth}].{key}");
                notes.unknown_key(&path, known.iter().copied());
            }
        }
    }
    options(value, notes);
}

/// Handles `engine_kwargs` that the engine does not support.
fn options(value: &mut Value, notes: &mut Diagnostics) {
    let kind = value["engine_config"]["type"].as_str();
    let kind = kind.unwrap_or_default().to_owned();
    let Some(kwargs) = object(value, KWARGS) else {
        return;
    };
    let engine = engines::find(&kind);
    let candle = candle_config::option_keys();
    let unread: Vec<String> = kwargs.keys().cloned().collect();
    for key in unread {
        let path = below(KWARGS, &key);
        let fate = match engine {
            Some(engine) => engine.option(&key, &kwargs[&key]),
            None if kind == CANDLE => candle_config::option_fate(&key, &kwargs[&key]),
            None => OptionFate::Taken,
        };
        match fate {
            OptionFate::Taken => continue,
            OptionFate::Refused(why) => notes.warn(&path, format!("has no effect: it {why}")),
            OptionFate::Unknown => match engine {
                Some(engine) => notes.unknown_key(&path, engine.flags.keys()),
                None => notes.unknown_key(&path, candle.iter().copied()),
            },
        }
        kwargs.shift_remove(&key);
    }
}

fn below(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

fn object<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let keys = path.split('.').filter(|key| !key.is_empty());
    let mut at = value.as_object_mut()?;
    for key in keys {
        at = at.get_mut(key)?.as_object_mut()?;
    }
    Some(at)
}
