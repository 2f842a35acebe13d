//! Decodes Opus packets. Symphonia reads the containers of this codec, and has no decoder for it.

use opus_pure::{ChannelLayout, MAX_PACKET_SAMPLES, OpusMSDecoder};

/// Samples per second of a decoded stream, whatever the rate of its source.
pub(super) const OPUS_RATE: u32 = 48_000;

/// Maximum size of a packet per stream. The frames of 120 ms have 61,296 bytes with their lengths; anything more is padding.
const STREAM_BYTES_MAX: usize = 1 << 16;

/// The identification header: `OpusHead` in Ogg, Matroska and WebM, `dOps` in MP4.
struct Head {
    layout: ChannelLayout,
    /// Samples per channel before the recording: the delay of the encoder.
    skip: usize,
    /// Output gain in 1/256 dB.
    gain: i16,
}

/// The state of one track.
pub(super) struct OpusTrack {
    decoder: OpusMSDecoder,
    channels: usize,
    skip_left: usize,
    gain: f32,
    decoded: Vec<f32>,
}

impl OpusTrack {
    /// Creates a decoder from the container's header of the codec. Without one, `channels` is the container's number.
    ///
    /// # Errors
    /// If the header is invalid, or has channels that cannot be decoded.
    pub fn new(head: Option<&[u8]>, channels: Option<usize>) -> Result<Self, String> {
        let head = match head {
            Some(bytes) => Head::read(bytes)?,
            None => Head {
                layout: layout(channels.unwrap_or(2), 0)?,
                skip: 0,
                gain: 0,
            },
        };
        let (channels, family) = (head.layout.nb_channels, head.layout.mapping_family);
        let decoder = OpusMSDecoder::new(OPUS_RATE as i32, channels, family);
        Ok(Self {
            decoder: decoder.map_err(|error| error.to_string())?,
            channels,
            skip_left: head.skip,
            gain: 10f32.powf(f32::from(head.gain) / (20.0 * 256.0)),
            decoded: vec![0.0; MAX_PACKET_SAMPLES * channels],
        })
    }

    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Decodes a packet, without the encoder's delay and without `padding` samples at its end. Returns interleaved samples, or
    /// `None` if the packet is damaged.
    pub fn decode(&mut self, packet: &[u8], padding: u64) -> Option<&[f32]> {
        let bytes_max = STREAM_BYTES_MAX * self.decoder.nb_streams();
        // The decoder takes an empty packet for a lost one, of a length that only its caller knows.
        if packet.is_empty() || packet.len() > bytes_max {
            return None;
        }
        let decoded = &mut self.decoded;
        let frames = self.decoder.decode(packet, MAX_PACKET_SAMPLES, decoded);
        let frames = frames.ok()?.min(MAX_PACKET_SAMPLES);
        let first = self.skip_left.min(frames);
        self.skip_left -= first;
        let padding = usize::try_from(padding).unwrap_or(usize::MAX);
        let last = frames.saturating_sub(padding).max(first);
        let kept = &mut self.decoded[first * self.channels..last * self.channels];
        kept.iter_mut().for_each(|sample| *sample *= self.gain);
        Some(kept)
    }

    /// Forgets the packets before.
    pub fn reset(&mut self) {
        // Fails for no state.
        let _ = self.decoder.reset_state();
    }
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let invalid = |problem: String| format!("its Opus header is invalid: {problem}");
        let body = bytes.strip_prefix(b"OpusHead");
        let Some(
            &[
                version,
                channels,
                skip_a,
                skip_b,
                _,
                _,
                _,
                _,
                gain_a,
                gain_b,
                family,
                ref table @ ..,
            ],
        ) = body
        else {
            return Err(invalid(format!("it has {} bytes", bytes.len())));
        };
        // MP4 has version 0 and the other order of bytes.
        let is_mp4 = version == 0;
        if version > 15 {
            return Err(invalid(format!("version {version} is not known")));
        }
        let number = |pair: [u8; 2]| {
            if is_mp4 {
                u16::from_be_bytes(pair)
            } else {
                u16::from_le_bytes(pair)
            }
        };
        let layout = layout(usize::from(channels), family)?;
        if family != 0 {
            let streams = [layout.nb_streams, layout.nb_coupled_streams];
            let usual = streams.iter().map(|count| *count as u8);
            let usual: Vec<u8> = usual.chain(layout.mapping.iter().copied()).collect();
            if table.get(..usual.len()) != Some(&usual) {
                return Err(invalid(format!(
                    "its {channels} channels are in another order than the usual one, which cannot be decoded; convert it to mono"
                )));
            }
        }
        Ok(Self {
            layout,
            skip: usize::from(number([skip_a, skip_b])),
            gain: number([gain_a, gain_b]).cast_signed(),
        })
    }
}

fn layout(channels: usize, family: u8) -> Result<ChannelLayout, String> {
    ChannelLayout::surround(channels, family).map_err(|_| {
        format!(
            "it has {channels} channels of Opus in mapping family {family}; 1 and 2 channels can be decoded, and up to 8 in family 1: convert it to mono"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with a delay of 312 samples and a gain of 2 dB.
    fn head(version: u8, channels: u8, family: u8, table: &[u8]) -> Vec<u8> {
        let mut head = b"OpusHead".to_vec();
        head.extend([version, channels]);
        head.extend([0x38, 0x01, 0x80, 0xbb, 0, 0, 0, 2, family]);
        head.extend(table);
        head
    }

    fn problem(head: &[u8]) -> String {
        OpusTrack::new(Some(head), None).err().expect("refused")
    }

    #[test]
    fn a_header_has_channels_a_delay_and_a_gain() {
        let track = OpusTrack::new(Some(&head(1, 2, 0, &[])), Some(1)).expect("read");
        assert_eq!((track.channels(), track.skip_left), (2, 312));
        assert!((track.gain - 1.2589).abs() < 1e-4, "{}", track.gain);
        let surround = head(1, 6, 1, &[4, 2, 0, 4, 1, 2, 3, 5]);
        let track = OpusTrack::new(Some(&surround), None).expect("read");
        assert_eq!(track.channels(), 6);
        let bare = OpusTrack::new(None, Some(1)).expect("read");
        assert_eq!((bare.channels(), bare.skip_left), (1, 0));
    }

    #[test]
    fn the_header_of_mp4_has_the_other_order_of_bytes() {
        let mut bytes = head(0, 1, 0, &[]);
        bytes[10..12].copy_from_slice(&[0x01, 0x38]);
        bytes[16..18].copy_from_slice(&[0xfe, 0]);
        let track = OpusTrack::new(Some(&bytes), None).expect("read");
        assert_eq!(track.skip_left, 312);
        assert!((track.gain - 0.7943).abs() < 1e-4, "{}", track.gain);
    }

    #[test]
    fn an_invalid_header_and_channels_that_cannot_be_decoded_are_named() {
        for (bytes, word) in [
            (b"OpusHead\x01".to_vec(), "9 bytes"),
            (b"OpusTags-----------------".to_vec(), "25 bytes"),
            (head(16, 1, 0, &[]), "version 16"),
            (head(1, 0, 0, &[]), "0 channels"),
            (head(1, 3, 0, &[]), "3 channels of Opus in mapping family 0"),
            (head(1, 9, 1, &[]), "9 channels"),
            (head(1, 2, 255, &[]), "family 255"),
            (head(1, 6, 1, &[4, 2, 0, 4]), "another order"),
            (head(1, 2, 1, &[2, 0, 1, 0]), "another order"),
        ] {
            let problem = problem(&bytes);
            assert!(problem.contains(word), "{word}: {problem}");
        }
    }

    #[test]
    fn the_largest_gain_gives_finite_samples() {
        for gain in [i16::MAX, i16::MIN] {
            let mut bytes = head(1, 1, 0, &[]);
            bytes[16..18].copy_from_slice(&gain.to_le_bytes());
            let mut track = OpusTrack::new(Some(&bytes), None).expect("read");
            let mut state = 1u32;
            for _ in 0..20 {
                let noise = (0..100).map(|_| {
                    state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                    (state >> 16) as u8
                });
                // CELT of 20 ms with all bands.
                let packet: Vec<u8> = [0xf8].into_iter().chain(noise).collect();
                let samples = track.decode(&packet, 0).expect("decodes");
                assert!(samples.iter().all(|sample| sample.is_finite()));
            }
        }
    }

    #[test]
    fn an_empty_or_an_absurdly_long_packet_is_damaged() {
        let mut track = OpusTrack::new(None, Some(1)).expect("a track");
        assert!(track.decode(&[], 0).is_none());
        assert!(track.decode(&vec![0xf8; STREAM_BYTES_MAX + 1], 0).is_none());
        // Four frames of 60 ms are longer than a packet may be.
        assert!(track.decode(&[0x1b, 4, 0, 0, 0, 0], 0).is_none());
    }
}
