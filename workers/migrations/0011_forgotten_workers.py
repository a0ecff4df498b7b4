"""Workers that an operator said are gone for good: out of every list, and their names free for others."""

from django.db import migrations, models
from django.db.models.functions import Lower


class Migration(migrations.Migration):
    dependencies = [("workers", "0010_names_for_people")]
    operations = [
        migrations.AddField(
            model_name="worker",
            name="forgotten_at",
            field=models.DateTimeField(
                blank=True,
                help_text="an operator said that it is gone for good; its row stays because history names it",
                null=True,
                verbose_name="forgotten at",
            ),
        ),
        migrations.RemoveConstraint(model_name="worker", name="one_worker_per_name"),
        migrations.AddConstraint(
            model_name="worker",
            constraint=models.UniqueConstraint(
                Lower("name"), condition=models.Q(("forgotten_at", None)), name="one_worker_per_name"
            ),
        ),
    ]
