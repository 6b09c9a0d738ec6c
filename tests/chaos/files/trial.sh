# A trial of 0.3 s with three intermediate results and a final one, which notes its actions: trial.sh NOTES.
# Notes are written after the outbox.
note="$1/${NNI_MANAGER_JOB%%:*}"
seq=$NNI_TRIAL_SEQ_ID
read -r parameters <"$NNI_SYS_DIR/parameter.cfg"
echo "started $$ $NNI_TRIAL_JOB_ID $seq $parameters" >>"$note"
for step in 0 1 2; do
    sleep 0.09
    echo "{\"type\": \"intermediate\", \"value\": $((seq * 10 + step))}" >>"$NNI_OUTBOX" &&
        echo "reported PERIODICAL $((seq * 10 + step)) $NNI_OUTBOX" >>"$note"
done
echo "{\"type\": \"final\", \"value\": $seq}" >>"$NNI_OUTBOX" && echo "reported FINAL $seq $NNI_OUTBOX" >>"$note"
