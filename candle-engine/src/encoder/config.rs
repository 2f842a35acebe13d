//! Reads an encoder's `config.json` into an [`EncoderSpec`].

mod fields;

use super::spec::{Activation, Biases, EncoderSpec, LayerSpec, Positions, RankHead};
use fields::Fields;
use model_files::families::{self, EncoderFamily as Family};
use serde_json::Value;

/// Returns the first encoder architecture named in `config.json`.
pub(crate) fn architecture(json: &Value) -> Option<&str> {
    let names = json["architectures"].as_array().into_iter().flatten();
    names
        .filter_map(Value::as_str)
        .find(|name| families::encoder(name).is_some())
}

impl EncoderSpec {
    /// Parses a `config.json`.
    ///
    /// # Errors
    /// If a field is missing, invalid or contradictory, or requires something this engine does not compute.
    pub fn read(json: &Value) -> Result<Self, String> {
        let name = architecture(json).ok_or("it names no encoder architecture")?;
        let (family, ranks) = families::encoder(name).ok_or("it names no encoder architecture")?;
        let fields = Fields { json };
        fields.refuse_unknown()?;
        let mut spec = match family {
            Family::Bert => fields.bert(name)?,
            Family::DistilBert => fields.distilbert()?,
            Family::Mpnet => fields.mpnet()?,
            Family::ModernBert => fields.modernbert()?,
            Family::NomicBert => fields.nomic()?,
            Family::Gte => fields.gte()?,
        };
        name.clone_into(&mut spec.architecture);
        if ranks {
            fields.one_label()?;
            spec.head = Some(fields.head(name, family)?);
            spec.shows_probability = fields.shows_probability()?;
        }
        spec.check()?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), String> {
        let (hidden, heads) = (self.hidden, self.heads);
        if !hidden.is_multiple_of(heads) {
            return Err(format!(
                "hidden_size {hidden} does not divide into {heads} attention heads"
            ));
        }
        if matches!(self.positions, Positions::Turned { .. }) && !(hidden / heads).is_multiple_of(2)
        {
            return Err(format!(
                "heads of the odd width {} cannot use rotary embeddings",
                hidden / heads
            ));
        }
        if !(self.epsilon > 0.0 && self.epsilon < 1.0) {
            return Err(format!(
                "the epsilon of its norms is {}, which is not between 0 and 1",
                self.epsilon
            ));
        }
        Ok(())
    }
}

impl Fields<'_> {
    /// Rejects settings that would change results and are not implemented.
    fn refuse_unknown(&self) -> Result<(), String> {
        if let Some(kind) = self.value("position_embedding_type")
            && !matches!(kind.as_str(), Some("absolute" | "rope"))
        {
            return Err(format!(
                "position_embedding_type is {kind}, which this engine does not support"
            ));
        }
        if self.value("quantization_config").is_some() {
            return Err("its weights are quantised; encoders support F32, F16 and BF16".into());
        }
        if self.flag_or("is_decoder", false)? {
            return Err("is_decoder is true, so it is not an encoder".into());
        }
        Ok(())
    }

    /// The specification common to most families, with BERT's field names.
    fn base(&self, family: Family) -> Result<EncoderSpec, String> {
        let plain = LayerSpec {
            window: None,
            theta: None,
        };
        let rows = self.size("max_position_embeddings")?;
        Ok(EncoderSpec {
            architecture: String::new(),
            family,
            head: None,
            shows_probability: true,
            vocabulary: self.size("vocab_size")?,
            hidden: self.size("hidden_size")?,
            heads: self.size("num_attention_heads")?,
            feed_width: self.size("intermediate_size")?,
            layers: vec![plain; self.layers("num_hidden_layers")?],
            epsilon: self.number_or("layer_norm_eps", 1e-12)? as f32,
            norm_bias: true,
            norms_before: false,
            positions: Positions::Learned {
                rows,
                padding: None,
            },
            token_types: 0,
            activation: self.activation("hidden_act", "gelu")?,
            gated: false,
            biases: Biases::ALL,
            context_tokens: rows,
        })
    }

    fn bert(&self, architecture: &str) -> Result<EncoderSpec, String> {
        let mut spec = self.base(Family::Bert)?;
        spec.token_types = self.count_or("type_vocab_size", 2)?;
        if !architecture.starts_with("Bert") {
            let padding = self.padding(1)?;
            let rows = spec.context_tokens;
            spec.positions = Positions::Learned {
                rows,
                padding: Some(padding),
            };
            spec.context_tokens = after_padding(rows, padding)?;
        }
        Ok(spec)
    }

    fn mpnet(&self) -> Result<EncoderSpec, String> {
        // MPNet's padding token is 1, whatever the file says (`MPNetEmbeddings` in transformers).
        const PADDING: u32 = 1;
        let mut spec = self.base(Family::Mpnet)?;
        let rows = spec.context_tokens;
        spec.positions = Positions::LearnedAndRelative {
            rows,
            padding: PADDING,
            buckets: self.size_or("relative_attention_num_buckets", 32)?,
        };
        spec.context_tokens = after_padding(rows, PADDING)?;
        Ok(spec)
    }

    fn distilbert(&self) -> Result<EncoderSpec, String> {
        let renamed = self.with_bert_names(&[
            ("dim", "hidden_size"),
            ("n_layers", "num_hidden_layers"),
            ("n_heads", "num_attention_heads"),
            ("hidden_dim", "intermediate_size"),
            ("activation", "hidden_act"),
        ]);
        Fields { json: &renamed }.base(Family::DistilBert)
    }

    fn modernbert(&self) -> Result<EncoderSpec, String> {
        let renamed = self.with_bert_names(&[
            ("hidden_activation", "hidden_act"),
            ("norm_eps", "layer_norm_eps"),
        ]);
        let fields = Fields { json: &renamed };
        let mut spec = fields.base(Family::ModernBert)?;
        spec.epsilon = self.number_or("norm_eps", 1e-5)? as f32;
        spec.norm_bias = self.flag_or("norm_bias", false)?;
        spec.norms_before = true;
        spec.gated = true;
        spec.positions = Positions::Turned { interleaved: false };
        let (attention, feed) = (
            self.flag_or("attention_bias", false)?,
            self.flag_or("mlp_bias", false)?,
        );
        spec.biases = Biases {
            query_key_value: attention,
            attention_output: attention,
            feed_input: feed,
            feed_output: feed,
        };
        let window = self.size_or("local_attention", 128)? / 2;
        let global = self.theta_of(
            &self.json["rope_parameters"]["full_attention"],
            self.number_or("global_rope_theta", 160_000.0)?,
        )?;
        let local = self.theta_of(
            &self.json["rope_parameters"]["sliding_attention"],
            self.number_or("local_rope_theta", 10_000.0)?,
        )?;
        let every = self.size_or("global_attn_every_n_layers", 3)?;
        let kinds = self.value("layer_types").and_then(Value::as_array);
        for (index, layer) in spec.layers.iter_mut().enumerate() {
            let is_local = match kinds.and_then(|kinds| kinds.get(index)).map(Value::as_str) {
                None => !index.is_multiple_of(every),
                Some(Some("sliding_attention")) => true,
                Some(Some("full_attention")) => false,
                Some(other) => {
                    return Err(format!(
                        "layer_types[{index}] is {other:?}; this engine supports full_attention and sliding_attention"
                    ));
                }
            };
            *layer = LayerSpec {
                window: is_local.then_some(window),
                theta: Some(if is_local { local } else { global }),
            };
        }
        Ok(spec)
    }

    fn nomic(&self) -> Result<EncoderSpec, String> {
        // Files on the hub use GPT-2's field names; newer ones use BERT's.
        let renamed = self.with_bert_names(&[
            ("n_embd", "hidden_size"),
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
            ("n_inner", "intermediate_size"),
            ("n_positions", "max_position_embeddings"),
            ("layer_norm_epsilon", "layer_norm_eps"),
            ("activation_function", "hidden_act"),
        ]);
        let fields = Fields { json: &renamed };
        for (name, only) in [
            ("prenorm", false),
            ("parallel_block", false),
            ("use_rms_norm", false),
            ("causal", false),
        ] {
            if self.flag_or(name, only)? != only {
                return Err(format!("{name} is {}; this engine computes {only}", !only));
            }
        }
        if self.number_or("moe_every_n_layers", 0.0)? > 0.0 {
            return Err("it has experts (moe_every_n_layers), which this engine does not support in encoders".into());
        }
        if self.number_or("rotary_emb_fraction", 1.0)? != 1.0
            || self.value("rotary_scaling_factor").is_some()
            || self.value("rotary_emb_scale_base").is_some()
        {
            return Err(
                "rotary_emb_fraction, rotary_scaling_factor or rotary_emb_scale_base is set, which this engine does not support"
                    .into(),
            );
        }
        let mut spec = fields.base(Family::NomicBert)?;
        if spec.activation != Activation::Silu && self.value("activation_function").is_some() {
            return Err("activation_function is not swiglu, which this engine needs".into());
        }
        let base = self.number_or("rotary_emb_base", 1000.0)?;
        spec.turned_by(self.theta_of(&self.json["rope_parameters"], base)?);
        spec.positions = Positions::Turned {
            interleaved: self.flag_or("rotary_emb_interleaved", false)?,
        };
        spec.token_types = self.count_or("type_vocab_size", 2)?;
        spec.gated = true;
        let attention = self.flag_or("qkv_proj_bias", false)?;
        spec.biases = Biases {
            query_key_value: attention,
            attention_output: attention,
            feed_input: self.flag_or("mlp_fc1_bias", false)?,
            feed_output: self.flag_or("mlp_fc2_bias", false)?,
        };
        Ok(spec)
    }

    fn gte(&self) -> Result<EncoderSpec, String> {
        if let Some(scaling) = self.value("rope_scaling") {
            return Err(format!(
                "rope_scaling is {scaling}, which this engine does not support for this architecture"
            ));
        }
        let mut spec = self.base(Family::Gte)?;
        let base = self.number_or("rope_theta", 160_000.0)?;
        spec.turned_by(self.theta_of(&self.json["rope_parameters"], base)?);
        spec.token_types = self.count_or("type_vocab_size", 1)?;
        spec.gated = true;
        spec.biases.feed_input = false;
        Ok(spec)
    }

    /// Returns a rotary base, preferring `rope_parameters` of newer files.
    fn theta_of(&self, rope: &Value, older: f64) -> Result<f64, String> {
        if let Some(kind) = rope["rope_type"].as_str()
            && kind != "default"
        {
            return Err(format!(
                "its rope_type is {kind}, which this engine does not support for encoders"
            ));
        }
        let theta = rope["rope_theta"].as_f64().unwrap_or(older);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(format!("its rope_theta is {theta}, which is not positive"));
        }
        Ok(theta)
    }

    /// A cross-encoder yields one number. Models with more labels are classifiers and have no route here.
    fn one_label(&self) -> Result<(), String> {
        let labels = match self.value("id2label").and_then(Value::as_object) {
            Some(labels) => labels.len(),
            // The default of transformers.
            None => self.size_or("num_labels", 2)?,
        };
        if labels == 1 {
            Ok(())
        } else {
            Err(format!(
                "it has {labels} classes (id2label); a reranker has one"
            ))
        }
    }

    fn head(&self, architecture: &str, family: Family) -> Result<RankHead, String> {
        Ok(match family {
            Family::Bert if architecture.starts_with("Bert") => RankHead::Pooler,
            Family::Gte => RankHead::Pooler,
            Family::Bert | Family::Mpnet => RankHead::Dense,
            Family::DistilBert => RankHead::PreClassifier,
            Family::ModernBert | Family::NomicBert => RankHead::Normed {
                on_mean: match self.value("classifier_pooling").map(Value::as_str) {
                    None | Some(Some("cls")) => false,
                    Some(Some("mean")) => true,
                    Some(other) => {
                        return Err(format!(
                            "classifier_pooling is {other:?}; this engine computes cls and mean"
                        ));
                    }
                },
                activation: self.activation("classifier_activation", "gelu")?,
                bias: self.flag_or("classifier_bias", false)?,
            },
        })
    }

    /// Returns true if scores pass through a sigmoid: the activation that Sentence Transformers saved in the file, a sigmoid by
    /// default.
    fn shows_probability(&self) -> Result<bool, String> {
        let newer = &self.json["sentence_transformers"]["activation_fn"];
        let older = &self.json["sbert_ce_default_activation_function"];
        let name = newer.as_str().or(older.as_str());
        match name.map(|name| name.rsplit('.').next().unwrap_or(name)) {
            None | Some("Sigmoid") => Ok(true),
            Some("Identity") => Ok(false),
            Some(other) => Err(format!(
                "its scores go through {other}; this engine computes Sigmoid and Identity"
            )),
        }
    }
}

impl EncoderSpec {
    fn turned_by(&mut self, theta: f64) {
        self.positions = Positions::Turned { interleaved: false };
        for layer in &mut self.layers {
            layer.theta = Some(theta);
        }
    }
}

/// Number of usable positions if the first one follows the padding token's id.
fn after_padding(rows: usize, padding: u32) -> Result<usize, String> {
    rows.checked_sub(padding as usize + 1)
        .filter(|left| *left > 0)
        .ok_or_else(|| {
            format!(
                "max_position_embeddings {rows} leaves no position after pad_token_id {padding}"
            )
        })
}

#[cfg(test)]
mod tests;
