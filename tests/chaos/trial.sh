# A trial that reports numbers that no other one reports, and writes down for itself what it did: trial.sh NOTES.
# Every line is one write. What stands in the notes was in the outbox before.
note="$1/${NNI_MANAGER_JOB%%:*}"
seq=$NNI_TRIAL_SEQ_ID
pause=0.$((seq % 7 + 1))
if [ $((seq % 12)) = 5 ]; then pause=3; fi
echo "started $$" >>"$note"
for step in 0 1 2; do
    sleep $pause
    echo "{\"type\": \"intermediate\", \"value\": $((seq * 10 + step))}" >>"$NNI_OUTBOX"
    echo "reported $((seq * 10 + step))" >>"$note"
done
echo "{\"type\": \"final\", \"value\": $seq}" >>"$NNI_OUTBOX"
echo "ended $seq" >>"$note"
