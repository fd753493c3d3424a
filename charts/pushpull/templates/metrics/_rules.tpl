{{/*
The groups of the PrometheusRule: of a dict with `rules`, the values metrics.rules, and `namespace`, the operator's.
Records are means of 5 minutes of each member (pod). Which member is slow compared with the others is the coordinator's
decision: pushpull_culprit.
*/}}
{{- define "pushpull.rules" -}}
{{- $alerts := .rules.alerts -}}
{{- $own := "namespace_job_pod:pushpull_own_seconds:mean5m" -}}
{{- $link := "namespace_job_pod:pushpull_link_seconds:mean5m" -}}
{{- $queue := "namespace_job_pod:pushpull_server_queue_seconds:mean5m" -}}
{{- $step := "namespace_job_pod:pushpull_step_seconds:mean5m" -}}
{{- $phase := "namespace_job_pod_phase:pushpull_sync_phase_seconds:mean5m" -}}
groups:
  - name: pushpull-records
    rules:
      - record: namespace_job:pushpull_samples:rate5m
        expr: sum by (namespace, job) (rate(pushpull_samples_total[5m]))
      - record: {{ $step }}
        expr: |-
          sum by (namespace, job, pod) (rate(pushpull_step_seconds_sum[5m]))
          / (sum by (namespace, job, pod) (rate(pushpull_step_seconds_count[5m])) > 0)
      - record: {{ $phase }}
        expr: |-
          sum by (namespace, job, pod, phase) (rate(pushpull_sync_phase_seconds_sum[5m]))
          / (sum by (namespace, job, pod, phase) (rate(pushpull_sync_phase_seconds_count[5m])) > 0)
      # What a worker does by itself in a step: computing, reducing, encoding, applying.
      - record: {{ $own }}
        expr: |-
          clamp_min({{ $step }}
          - sum by (namespace, job, pod) ({{ $phase }}{phase!~"reduce|encode|apply"}), 0)
      - record: {{ $link }}
        expr: sum by (namespace, job, pod) ({{ $phase }}{phase=~"queue|wire|reply"})
      - record: {{ $queue }}
        expr: |-
          sum by (namespace, job, pod) (rate(pushpull_server_queue_seconds_sum[5m]))
          / (sum by (namespace, job, pod) (rate(pushpull_server_queue_seconds_count[5m])) > 0)
  - name: pushpull-jobs
    rules:
      {{- with $alerts.stalled }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullStalled" "for" .forSeconds "severity" "warning"
        "expr" "max by (namespace, job) (pushpull_stalled) == 1"
        "summary" "{{ $labels.namespace }}/{{ $labels.job }} is waiting for a worker"
        "description" "The coordinator's log names worker, tensor and step; spec.sync.onStall decides what happens.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.straggler }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullStraggler" "for" .forSeconds "severity" "warning"
        "expr" (printf "max by (namespace, job, member) (pushpull_culprit{kind=\"worker\"}) > %v" .stepShare)
        "summary" "{{ $labels.member }} delays the other workers of {{ $labels.namespace }}/{{ $labels.job }}"
        "description" "Its own part of a step, computing included, takes longer than that of the others and costs {{ $value | humanizePercentage }} of each step.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.slowLink }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullSlowLink" "for" .forSeconds "severity" "warning"
        "expr" (printf "max by (namespace, job, member) (pushpull_culprit{kind=\"link\"}) > %v" .stepShare)
        "summary" "The link of {{ $labels.member }} of {{ $labels.namespace }}/{{ $labels.job }} is slow"
        "description" "Gradients and parameters take longer than on the other links, which costs {{ $value | humanizePercentage }} of each step.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.slowServer }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullSlowServer" "for" .forSeconds "severity" "warning"
        "expr" (printf "max by (namespace, job, member) (pushpull_culprit{kind=\"server\"}) > %v" .stepShare)
        "summary" "{{ $labels.member }} is slower than the other servers of {{ $labels.namespace }}/{{ $labels.job }}"
        "description" "Gradients stay in it longer than in the others, which costs {{ $value | humanizePercentage }} of each step.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.busyServer }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullBusyServer" "for" .forSeconds "severity" "warning"
        "expr" (printf "max by (namespace, job, pod) (pushpull_server_busy_ratio) > %v" .busyRatio)
        "summary" "{{ $labels.pod }} of {{ $labels.namespace }}/{{ $labels.job }} is at its limit"
        "description" "Its lanes are busy {{ $value | humanizePercentage }} of the time.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.checkpointFails }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullCheckpointFails" "for" .forSeconds "severity" "warning"
        "expr" (printf "sum by (namespace, job) (increase(pushpull_checkpoint_failures_total[%ds])) > 0" (int64 .windowSeconds))
        "summary" "Checkpoints of {{ $labels.namespace }}/{{ $labels.job }} cannot be written"
        "description" "The coordinator's log has the reason. Training continues, and the number of steps at risk grows.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.nonFiniteGradients }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullNonFiniteGradients" "for" .forSeconds "severity" "warning"
        "expr" (printf "sum by (namespace, job) (increase(pushpull_nonfinite_gradients_total[%ds])) > 0" (int64 .windowSeconds))
        "summary" "Gradients of {{ $labels.namespace }}/{{ $labels.job }} are NaN or infinite"
        "description" "The servers' logs name tensor, worker and step; spec.sync.nonFinite decides what happens.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.certificateExpires }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullCertificateExpires" "for" .forSeconds "severity" "warning"
        "expr" (printf "min by (namespace, job, pod) (pushpull_certificate_expiry_timestamp_seconds) - time() < %d" (int64 .remainingSeconds))
        "summary" "The certificate of {{ $labels.pod }} of {{ $labels.namespace }}/{{ $labels.job }} expires soon"
        "description" "It expires in {{ $value | humanizeDuration }} and should have been renewed long ago.") | nindent 6 }}
      {{- end }}
  - name: pushpull-operator
    rules:
      {{- $of := printf "{namespace=%q}" .namespace }}
      {{- with $alerts.operatorDown }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullOperatorDown" "for" .forSeconds "severity" "critical"
        "expr" (printf "absent(pushpull_operator_leader%s == 1)" $of)
        "summary" (printf "No Pushpull operator is the leader in namespace %s" $.namespace)
        "description" "Running jobs continue; none is started, restarted, scaled or finished.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.operatorNotReconciling }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullOperatorNotReconciling" "for" .forSeconds "severity" "critical"
        "expr" (printf "sum by (namespace) (pushpull_operator_queue_depth%s) > 0\nand sum by (namespace) (rate(pushpull_operator_reconcile_seconds_count%s[5m])) == 0" $of $of)
        "summary" "The Pushpull operator is not reconciling"
        "description" "{{ $value }} jobs are queued, and none has been reconciled for 5 minutes.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.reconcileErrors }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullReconcileErrors" "for" .forSeconds "severity" "warning"
        "expr" (printf "sum by (namespace, controller) (rate(pushpull_operator_reconcile_errors_total%s[10m])) > %v" $of .perSecond)
        "summary" "The controller {{ $labels.controller }} fails repeatedly"
        "description" "The condition Reconciled of the jobs concerned has the reason.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.restarts }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullRestarts" "for" .forSeconds "severity" "warning"
        "expr" (printf "sum by (namespace, reason) (increase(pushpull_operator_restarts_total%s[%ds])) > %v" $of (int64 .windowSeconds) .count)
        "summary" "Members of jobs are restarted repeatedly: {{ $labels.reason }}"
        "description" "About {{ $value | humanize }} restarts; status.restarts and the jobs' events name the members.") | nindent 6 }}
      {{- end }}
      {{- with $alerts.scalingBlocked }}
      {{- include "pushpull.alert" (dict "rules" $.rules "name" "PushpullScalingBlocked" "for" .forSeconds "severity" "warning"
        "expr" (printf "max by (namespace) (pushpull_operator_scaling_blocked%s) > 0" $of)
        "summary" "Servers cannot be drained"
        "description" "The condition ScalingBlocked of the job has the reason. No data is lost; scaling back up cancels the drain.") | nindent 6 }}
      {{- end }}
{{- end }}

{{/* One alert, unless the values leave it out: of a dict with rules, name, for, severity, expr, summary, description. */}}
{{- define "pushpull.alert" -}}
{{- if not (has .name .rules.disabled) -}}
- alert: {{ .name }}
  expr: |-
    {{- .expr | nindent 4 }}
  for: {{ int64 .for }}s
  labels: {severity: {{ .severity }}}
  annotations:
    summary: {{ .summary | quote }}
    description: {{ .description | quote }}
    runbook_url: {{ printf "%s/%s.md" (trimSuffix "/" .rules.runbookUrl) .name | quote }}
{{- end }}
{{- end }}
