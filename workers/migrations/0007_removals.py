"""Containers on hold that an operator wants removed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0006_refused_reports")]
    operations = [
        migrations.AddField(
            model_name="worker",
            name="removals",
            field=models.JSONField(
                blank=True, help_text="of those, the leases whose containers an operator wants removed", null=True
            ),
        ),
    ]
