//! Maps alternative tensor names in folders to the usual ones.

use super::table::{Table, TensorLocation};

/// Returns the usual name of a decoder's tensor. `bare` folders contain a decoder without its head and omit `model.`.
pub(super) fn decoder_name(name: &str, bare: bool) -> String {
    // Multimodal models prefix the names of their decoder, in two ways depending on their age.
    for (prefix, usual) in [
        ("model.language_model.", "model."),
        ("language_model.model.", "model."),
        ("language_model.lm_head.", "lm_head."),
    ] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return format!("{usual}{rest}");
        }
    }
    if bare {
        format!("model.{name}")
    } else {
        name.to_owned()
    }
}

/// Splits stacked experts into one tensor per expert. Some folders stack all experts of a block, as `transformers` 5 does in
/// memory.
pub(super) fn unstack_experts(table: &mut Table) {
    let mut added: Vec<(String, TensorLocation)> = Vec::new();
    for (name, place) in &table.places {
        let Some(block) = name
            .strip_suffix("mlp.experts.gate_up_proj")
            .or_else(|| name.strip_suffix("mlp.experts.down_proj"))
        else {
            continue;
        };
        let [experts, rows, _] = place.shape[..] else {
            continue;
        };
        let parts = if name.ends_with("down_proj") {
            vec![(("down_proj", "w2"), 0..rows)]
        } else {
            vec![
                (("gate_proj", "w1"), 0..rows / 2),
                (("up_proj", "w3"), rows / 2..rows),
            ]
        };
        for expert in 0..experts {
            for ((usual, mixtral), rows) in &parts {
                let Some(part) = place.part(expert, rows.clone()) else {
                    continue;
                };
                let mixtral = format!("{block}block_sparse_moe.experts.{expert}.{mixtral}.weight");
                added.push((
                    format!("{block}mlp.experts.{expert}.{usual}.weight"),
                    part.clone(),
                ));
                added.push((mixtral, part));
            }
        }
    }
    for (name, place) in added {
        table.places.entry(name).or_insert(place);
    }
}
