"""The names of every metric and label, in one place: stages, the gate, `spillway status` and dashboards share them."""

from __future__ import annotations

from typing import Final

PIPELINE: Final = "pipeline"
STAGE: Final = "stage"
REPLICA: Final = "replica"
KIND: Final = "kind"
REASON: Final = "reason"
PARTITION: Final = "partition"
TERM: Final = "term"  # of an estimate: spillway.agents.core.calibration.TERMS
FATE: Final = "fate"  # of a request that was judged: spillway.agents.core.calibration.FATES
OF_STAGE: Final = "of_stage"  # whose word it was, where one process tells of another
OF_REPLICA: Final = "of_replica"
ROLE: Final = "role"  # of a member of a stateful shard: spillway.checkpoint.promotion.Role
PLACE: Final = "place"  # a process that the supervisor keeps, by its name
WHY: Final = "why"  # coding pauses (spillway.agents.core.dispatch), or workers were ordered
WHO: Final = "who"  # has ordered a stage's workers
WHAT: Final = "what"  # of a replica's word: spillway.agents.metrics
VERSION: Final = "version"  # of a model
MEMBER: Final = "member"  # of an ensemble
VARIANT: Final = "variant"  # of a model
STATE: Final = "state"  # of a variant
HOW: Final = "how"  # a variant was found
LABELS: Final = (PIPELINE, STAGE, REPLICA)  # of every metric; the gate's stage is GATE
GATE: Final = "gate"

# A stage's.
RECEIVED_TOTAL: Final = "spillway_received_total"
DUPLICATES_TOTAL: Final = "spillway_duplicates_total"
BATCHES_TOTAL: Final = "spillway_batches_total"
BATCHED_QUERIES_TOTAL: Final = "spillway_batched_queries_total"
OFFLINE_QUERIES_TOTAL: Final = "spillway_offline_queries_total"
DEAD_LETTERS_TOTAL: Final = "spillway_dead_letters_total"  # by reason
QUEUE_DEPTH: Final = "spillway_queue_depth"
QUEUE_LIMIT: Final = "spillway_queue_limit"
QUEUE_SECONDS: Final = "spillway_queue_seconds"
BATCH_WAIT_SECONDS: Final = "spillway_batch_wait_seconds"
EXECUTION_SECONDS: Final = "spillway_execution_seconds"
INTAKE_SECONDS: Final = "spillway_intake_seconds"  # from a message's timestamp in the input topic to the queue
OVERHEAD_SECONDS: Final = "spillway_batch_overhead_seconds"  # that an instance was taken up beyond its model
HANDOFF_SECONDS: Final = "spillway_handoff_seconds"  # from the end of a batch's execution to its messages' production
BUSY_SECONDS_TOTAL: Final = "spillway_busy_seconds_total"
EMITTED_TOTAL: Final = "spillway_emitted_total"
COMMITTED_OFFSET: Final = "spillway_committed_offset"  # by partition
CLOCK_SKEW_TOTAL: Final = "spillway_clock_skew_total"
MODEL_INSTANCES: Final = "spillway_model_instances"
MODEL_VERSION: Final = "spillway_model_version"  # by version: workers that have it, 0 of one that is gone
MODEL_INSTANCES_WANTED: Final = "spillway_model_instances_wanted"  # by the table of sizes, or the pipeline file
MODEL_INSTANCES_ORDER: Final = "spillway_model_instances_order"  # by who and why: when they were wanted, unix seconds
BATCH_LIMIT: Final = "spillway_batch_limit"
BATCH_UNMET: Final = "spillway_batch_objective_unmet"
CACHE_HITS_TOTAL: Final = "spillway_cache_hits_total"
CACHE_SHARED_TOTAL: Final = "spillway_cache_shared_total"
CACHE_MISSES_TOTAL: Final = "spillway_cache_misses_total"
EXTRAS_TOTAL: Final = "spillway_extras_total"
EXTRAS_SHED_TOTAL: Final = "spillway_extras_shed_total"
RECOVERED_TOTAL: Final = "spillway_recovered_total"
DEFAULTS_TOTAL: Final = "spillway_defaults_total"  # queries that got the stage's default outputs
COMBINED_TOTAL: Final = "spillway_combined_total"  # queries whose members' answers were combined
PARTIAL_TOTAL: Final = "spillway_partial_total"  # of them, those without all members that were asked
DECLINED_TOTAL: Final = "spillway_declined_total"  # of them, those below the threshold of confidence
MEMBER_WORKERS: Final = "spillway_member_workers"  # by member: workers that are ready or busy
MEMBER_WANTED: Final = "spillway_member_workers_wanted"  # by member
MEMBER_TROUBLE: Final = "spillway_member_trouble"  # by member and why it does not serve: 1
ENSEMBLE_ORDER: Final = "spillway_ensemble_order"  # by who and why: since when it is as it is, unix seconds
MEMBER_ASKED_TOTAL: Final = "spillway_member_asked_total"  # by member
MEMBER_MISSING_TOTAL: Final = "spillway_member_missing_total"  # by member: combined without its answer
MEMBER_REFUSED_TOTAL: Final = "spillway_member_refused_total"  # by member and reason
MEMBER_CACHE_HITS_TOTAL: Final = "spillway_member_cache_hits_total"  # by member: as the stage's cache
MEMBER_CACHE_SHARED_TOTAL: Final = "spillway_member_cache_shared_total"
MEMBER_CACHE_MISSES_TOTAL: Final = "spillway_member_cache_misses_total"
MEMBER_CACHE_BYTES: Final = "spillway_member_cache_bytes"
MEMBERS_LATE_TOTAL: Final = "spillway_members_late_total"  # members' answers that changed nothing
VARIANT_WORKERS: Final = "spillway_variant_workers"  # by variant: workers that are ready or busy
VARIANT_ASKED_TOTAL: Final = "spillway_variant_asked_total"  # by variant
VARIANT_WANTED: Final = "spillway_variant_workers_wanted"  # by variant
VARIANT_ORDERS_TOTAL: Final = "spillway_variant_orders_total"
VARIANT_COST_TOTAL: Final = "spillway_variant_cost_total"  # of all workers
VARIANT_HOSTS: Final = "spillway_variant_hosts"  # emulated, by kind
VARIANT_HOSTS_COST_TOTAL: Final = "spillway_variant_hosts_cost_total"
VARIANT_STATE: Final = "spillway_variant_state"  # by variant and state: 1 for the one that it is in
VARIANT_STALE: Final = "spillway_variant_stale"  # by variant: times its profile that its batches take
VARIANT_FOUND_TOTAL: Final = "spillway_variant_found_total"  # by how
VARIANT_ANSWERED_TOTAL: Final = "spillway_variant_answered_total"
VARIANT_MET_TOTAL: Final = "spillway_variant_met_total"  # of them, those that had what they asked for
CODING_PAUSED: Final = "spillway_coding_paused"  # by why: 1 while a stage that is to be coded is not
CODING_PAUSED_GROUPS_TOTAL: Final = "spillway_coding_paused_groups_total"
CODING_AGREEMENT: Final = "spillway_coding_agreement"  # A_d as it is served, of the last that were graded
CODING_GRADED_TOTAL: Final = "spillway_coding_graded_total"
CODING_SUSPENDED_TOTAL: Final = "spillway_coding_suspended_total"  # times that it fell below the floor
CACHE_BYTES: Final = "spillway_cache_bytes"
ESTIMATE_ERROR_SECONDS: Final = "spillway_estimate_error_seconds"  # by term: what happened less what was told
TOLD_SECONDS_TOTAL: Final = "spillway_told_seconds_total"  # by term
HAPPENED_SECONDS_TOTAL: Final = "spillway_happened_seconds_total"  # by term
BUDGET_SECONDS: Final = "spillway_budget_seconds"  # by fate: left to the deadline when a request was judged
SHORTFALL_SECONDS: Final = "spillway_shortfall_seconds"  # by how much the estimates of dropped ones missed it
CONSUMED_SECONDS: Final = "spillway_consumed_seconds"  # from arrival at the stage to the end of the batch
PLAN_WORDS_TOTAL: Final = "spillway_plan_words_total"  # of other replicas, taken
PLAN_REFUSED_TOTAL: Final = "spillway_plan_refused_total"  # by reason
PLAN_UNSAID_TOTAL: Final = "spillway_plan_unsaid_total"  # the word before was still under way
PLAN_AGE_SECONDS: Final = "spillway_plan_age_seconds"  # of others' words when the policy gets them
PLAN_DELAY_SECONDS: Final = "spillway_plan_delay_seconds"  # from saying a word to hearing it
PLAN_WORD: Final = "spillway_plan_word"  # by replica of any stage and by what: the newest words that a process knows
PLAN_SILENT: Final = "spillway_plan_silent"  # by replica of any stage: 1 where its word has aged out

# Those of a member of a stateful shard. Versions are their n; the epoch is one for all of them.
STATE_ROLE: Final = "spillway_state_role"  # by role: 1 for the one that it has
STATE_EPOCH: Final = "spillway_state_epoch"  # the newest that it knows
STATE_VERSION: Final = "spillway_state_version"  # that its own copy of the state is at
STATE_DURABLE_VERSION: Final = "spillway_state_durable_version"  # the newest durable one of the shard
STATE_BACKUP_LAG_VERSIONS: Final = "spillway_state_backup_lag_versions"  # of a backup: durable ones not applied yet
STATE_DURABLE_LAG_SECONDS: Final = "spillway_state_durable_lag_seconds"  # age of the oldest version not durable yet
STATE_WRITTEN_BYTES_TOTAL: Final = "spillway_state_written_bytes_total"  # of chunks and manifests
STATE_MOVED_BYTES_TOTAL: Final = "spillway_state_moved_bytes_total"  # of chunks, as they are acknowledged or read
STATE_UNPUBLISHED: Final = "spillway_state_unpublished"  # keys whose newest state cannot be published
STATE_CAPTURE_SECONDS: Final = "spillway_state_capture_seconds"  # copying a state while the next batch computes

# The stages' and the gate's.
WAITS: Final = "spillway_waits"  # by partition: 1 where its commit waits for durable versions of other stages
HOPS_MARKS_BYTES: Final = "spillway_hops_marks_bytes"  # of marks in the hops header of a message that is sent
STOPPED_AT_OFFSET: Final = "spillway_stopped_at_offset"  # by partition whose log lost that next offset
OUTCOMES_TOTAL: Final = "spillway_outcomes_total"  # by kind and reason

# The supervisor's, by place.
PLACE_RESTARTS_TOTAL: Final = "spillway_place_restarts_total"
PLACE_FLAPPING: Final = "spillway_place_flapping"  # 1 where it dies again and again, or is given up
UNANSWERED_SECONDS: Final = "spillway_unanswered_seconds"  # for which queries have waited and none was answered

# The tuner's; those that have a stage, by of_stage.
TUNER_EXCESS: Final = "spillway_tuner_excess_ratio"  # the largest live arrival rate by the plan's sample's
TUNER_TUNES: Final = "spillway_tuner_tunes"  # 1 where it has the stage's sizes
TUNER_ORDERS_TOTAL: Final = "spillway_tuner_orders_total"
TUNER_SHORT: Final = "spillway_tuner_short"  # 1 where the stage needs more workers than there can be

# The gate's.
GOOD_TOTAL: Final = "spillway_good_total"
LATE_TOTAL: Final = "spillway_late_total"
FLAGS_CUT_TOTAL: Final = "spillway_flags_cut_total"  # outcomes that lost flags on their way, to keep the bounds
LATENCY_SECONDS: Final = "spillway_latency_seconds"
HELD: Final = "spillway_held"
STATE_HOLD_SECONDS: Final = "spillway_state_hold_seconds"  # that an outcome waited for versions to be durable
TRANSACTION_SECONDS: Final = "spillway_transaction_seconds"
ABORTED_TOTAL: Final = "spillway_transactions_aborted_total"
TRACES_SENT_TOTAL: Final = "spillway_traces_sent_total"
TRACES_LOST_TOTAL: Final = "spillway_traces_lost_total"  # by reason: there were too many, or the collector took none

# A gateway's.
CODE: Final = "code"  # of an answer, by its name in gRPC
PROTOCOL: Final = "protocol"
GATEWAY: Final = "gateway"
REQUESTS_TOTAL: Final = "spillway_gateway_requests_total"
REQUEST_SECONDS: Final = "spillway_gateway_request_seconds"
REQUESTS_UNDER_WAY: Final = "spillway_gateway_requests_under_way"
PASSED_OVER_TOTAL: Final = "spillway_gateway_passed_over_total"
BYTES_UNDER_WAY: Final = "spillway_gateway_bytes_under_way"
