//! Reads the mixture-of-experts fields of `config.json`: the number of experts, the blocks that have them, and the routing.

use super::{Family, Reader};
use crate::spec::{ExpertGroups, ExpertNames, Experts, Scoring};

/// Maximum number of experts in all blocks of a model; larger values are corrupt.
const EXPERTS_MAX: usize = 1 << 18;

impl Reader<'_> {
    /// Returns the model's experts, and for each block whether it has them.
    pub(super) fn experts(&self) -> Result<Option<(Experts, Vec<bool>)>, String> {
        let found = match self.family {
            Family::Mixtral => Some((self.mixtral()?, vec![true; self.blocks])),
            Family::Qwen2Moe | Family::Qwen3Moe => self.qwen()?,
            Family::DeepseekV2 | Family::DeepseekV3 => Some(self.deepseek()?),
            _ => None,
        };
        if let Some((experts, _)) = &found
            && experts.count > EXPERTS_MAX / self.blocks
        {
            return Err(format!(
                "{} blocks of {} experts each are more than the maximum of {EXPERTS_MAX} experts",
                self.blocks, experts.count
            ));
        }
        if let Some((experts, _)) = &found
            && experts.chosen > experts.count
        {
            return Err(format!(
                "num_experts_per_tok is {}, more than the {} experts",
                experts.chosen, experts.count
            ));
        }
        Ok(found)
    }

    /// The number of experts has several field names; some files use the name of another family.
    fn expert_count(&self, names: [&str; 3], default: usize) -> Result<usize, String> {
        for name in names {
            if let Some(count) = self.config.maybe_count(name)? {
                return Ok(count);
            }
        }
        Ok(default)
    }

    fn mixtral(&self) -> Result<Experts, String> {
        Ok(Experts {
            count: self
                .expert_count(["num_local_experts", "num_experts", "n_routed_experts"], 8)?,
            chosen: self.config.count("num_experts_per_tok", 2)?,
            width: self
                .config
                .count("intermediate_size", self.defaults.width)?,
            activation: self.activation()?,
            scoring: Scoring::Softmax,
            normalises_chosen: true,
            factor: 1.0,
            shared_width: None,
            gates_shared: false,
            groups: None,
            naming: ExpertNames::Mixtral,
        })
    }

    fn qwen(&self) -> Result<Option<(Experts, Vec<bool>)>, String> {
        let config = self.config;
        let shares = self.family == Family::Qwen2Moe;
        let (count, chosen, width) = if shares { (60, 4, 1408) } else { (128, 8, 768) };
        if config.maybe_number_of("num_experts")? == Some(0) {
            return Ok(None);
        }
        let step = config.count("decoder_sparse_step", 1)?;
        let plain = config.numbers_of("mlp_only_layers")?.unwrap_or_default();
        let places = (0..self.blocks)
            .map(|place| !plain.contains(&place) && (place + 1).is_multiple_of(step))
            .collect();
        let experts = Experts {
            count: self.expert_count(
                ["num_experts", "num_local_experts", "n_routed_experts"],
                count,
            )?,
            chosen: config.count("num_experts_per_tok", chosen)?,
            width: config.count("moe_intermediate_size", width)?,
            activation: self.activation()?,
            scoring: Scoring::Softmax,
            normalises_chosen: config.flag("norm_topk_prob", false)?,
            factor: 1.0,
            shared_width: if shares {
                Some(config.count("shared_expert_intermediate_size", 5632)?)
            } else {
                None
            },
            gates_shared: shares,
            groups: None,
            naming: ExpertNames::Qwen,
        };
        Ok(Some((experts, places)))
    }

    fn deepseek(&self) -> Result<(Experts, Vec<bool>), String> {
        let config = self.config;
        let third = self.family == Family::DeepseekV3;
        let pick = |second: usize, of_third: usize| if third { of_third } else { second };
        let dense = config
            .maybe_number_of("first_k_dense_replace")?
            .unwrap_or(pick(0, 3));
        let count = self.expert_count(
            ["n_routed_experts", "num_experts", "num_local_experts"],
            pick(64, 256),
        )?;
        let chosen = match config.maybe_count("num_experts_per_tok")? {
            Some(chosen) => chosen,
            None if third => 8,
            None => return Err("num_experts_per_tok is missing".to_owned()),
        };
        let width = config.count("moe_intermediate_size", pick(1407, 2048))?;
        let shared = config.count("n_shared_experts", pick(2, 1))?;
        let experts = Experts {
            count,
            chosen,
            width,
            activation: self.activation()?,
            scoring: if third {
                Scoring::Sigmoid
            } else {
                Scoring::Softmax
            },
            // Version 2 has the field but ignores it.
            normalises_chosen: third && config.flag("norm_topk_prob", true)?,
            factor: config.number("routed_scaling_factor", if third { 2.5 } else { 1.0 })? as f32,
            shared_width: width.checked_mul(shared),
            gates_shared: false,
            groups: self.groups(count, chosen, third)?,
            naming: ExpertNames::Qwen,
        };
        let places = (0..self.blocks).map(|place| place >= dense).collect();
        Ok((experts, places))
    }

    fn groups(
        &self,
        experts: usize,
        chosen_experts: usize,
        third: bool,
    ) -> Result<Option<ExpertGroups>, String> {
        let config = self.config;
        if !third {
            match config.text("topk_method")?.unwrap_or("greedy") {
                "greedy" => return Ok(None),
                "group_limited_greedy" => {}
                other => {
                    return Err(format!(
                        "topk_method is {other}; this engine supports greedy and group_limited_greedy"
                    ));
                }
            }
        }
        let default = |of_third: usize| if third { of_third } else { 1 };
        let count = config.count("n_group", default(8))?;
        let chosen = config.count("topk_group", default(4))?;
        if !experts.is_multiple_of(count) || chosen > count {
            return Err(format!(
                "{experts} experts cannot be chosen from {chosen} (topk_group) of {count} groups (n_group)"
            ));
        }
        let each = experts / count;
        if third && each < 2 {
            return Err(format!(
                "groups of {each} expert cannot be ranked by their two best (n_group {count})"
            ));
        }
        if chosen_experts > chosen * each {
            return Err(format!(
                "num_experts_per_tok is {chosen_experts}, more than the {} experts of {chosen} groups",
                chosen * each
            ));
        }
        Ok(Some(ExpertGroups {
            count,
            chosen,
            by_two_best: third,
        }))
    }
}
